"""Faults of the pipeline. Two stages: embedding and block0; block1 and head. Four micro-batches."""

from fault import Fault, Run, Unseen

PIPELINE = "parallel/pipeline/pipeline.cpp"
FLAGS = "--mesh 1x2x1"

FAULTS = [
    Fault("later_stages_take_another_micro_batch", PIPELINE,
          [("reads ? run.batch(a.micro)",
            "reads ? run.batch(stage_ > 0 ? run.micros - 1 - a.micro : a.micro)")],
          [Run(FLAGS, "step 1: activation of block1")]),
    Fault("layer_placed_twice", PIPELINE,
          [("begin + counts[size_t(v)]);", "begin + counts[size_t(v)] + (v == 0 && shape.stages > 1));")],
          [Run(FLAGS, r"exit status 78: .*block1.norm1.gamma .* used on stages 0, 1;[\s\S]*")]),
    Fault("layer_placed_nowhere", PIPELINE,
          [("begin + counts[size_t(v)]);", "begin + counts[size_t(v)] - (v == 0 && shape.stages > 1));")],
          [Run(FLAGS, r"exit status 78: .*block0.norm1.gamma .* used on no stage;[\s\S]*")]),
    Fault("activation_sent_in_low_precision", PIPELINE,
          [("slot.y = receive(*from);", "slot.y = receive(*from).to(DType::bf16).to(f32);")],
          [Run(FLAGS, "step 1: activation of block1")]),
    Fault("gradient_sent_in_low_precision", PIPELINE,
          [("send(shape, *to, *slot.dx);", "send(shape, *to, slot.dx->to(DType::bf16).to(f32));")],
          [Run(FLAGS, "step 1: gradient of block0.down.bias")]),
    Fault("gradient_not_sent", PIPELINE,
          [("send(shape, *to, *slot.dx);", "send(shape, *to, zeros(boundary(*to).shape, boundary(*to).dtype, cpu));")],
          [Run(FLAGS, "step 1: gradient of block0.down.bias", "it is missing altogether")]),
    # A gradient that somebody else holds, such as a put-off rule, is not added into, but rounded first.
    Fault("gradient_that_is_held_is_not_added_into", "autograd/engine.cpp",
          [("      if (!held.exclusive()) held = clone(held);\n      slot.held", "      if (!held.exclusive()) continue;\n      slot.held")],
          [Run("--mesh 1x2x1 --schedule zb-h1 --precision bf16 --bitwise --micro-batch 1", "step 1: gradient of .*",
               program="llama")]),
    Fault("seed_applied_on_every_stage", PIPELINE,
          [("#include <numeric>\n", '#include <numeric>\n\n#include "autograd/ops.h"\n'),
           ("from ? receive(*from)", "from ? receive(*from) * run.seed")],
          [Run(FLAGS, "step 1: gradient of block0.down.bias", "a factor of about 0.0156")]),
    Fault("weight_gradients_of_a_micro_batch_not_run", PIPELINE,
          [("slots_.at({a.chunk, a.micro}).later.run();",
            "if (a.micro > 0) slots_.at({a.chunk, a.micro}).later.run();")],
          [Run(FLAGS + " --schedule zb-h1", "step 1: gradient of final_norm.beta",
               "a part of the sum is missing"),
           Run("--mesh 2x2x2 --zero 1 --sequence-parallel --schedule zb-h1",
               "step 1: gradient of final_norm.beta", "a part of the sum is missing")]),
]

UNSEEN = [
    Unseen("one_more_micro_batch_in_flight", "parallel/pipeline/schedule.cpp",
           [("return alternate(s, s.stages - stage - 1);", "return alternate(s, s.stages - stage);")],
           "what is kept longer is right",
           FLAGS, "test_parallel", "Schedule.LiveActivations"),
    Unseen("deadlock_not_looked_for", "parallel/pipeline/check_schedule.cpp",
           [("!simulation.deadlock(), Exit::config", "lists.size() > 0 || !simulation.deadlock(), Exit::config")],
           "no schedule of a run has one",
           FLAGS, "test_parallel", "CheckSchedule.Deadlock"),
    Unseen("stages_that_disagree_begin", PIPELINE,
           [("  agree(mesh.pp());\n", "")],
           "the stages of a run agree",
           FLAGS, "test_parallel", "PipelineTest.StagesMustAgree*"),
    Unseen("graph_kept_after_backward", PIPELINE,
           [("  slot.y = *slot.dx = slot.seed = {};\n", ""),
            ("  if (whole) slots_.erase({a.chunk, a.micro});\n", "")],
           "what is kept is right",
           FLAGS, "test_examples", "Sharding.SchedulesKeep*:Recompute.Keeps*"),
    Unseen("a_send_is_waited_for", PIPELINE,
           [("to.send(x.detach().contiguous(), 1 - to.rank()));",
             "to.send(x.detach().contiguous(), 1 - to.rank()));\n"
             "  if (what.kind == Handover::gradient) sends_.back().wait();")],
           "two stages find a time to meet",
           FLAGS, "test_parallel", "BubbleTest.Sends*"),
    Unseen("weight_gradients_not_put_off", PIPELINE,
           [("whole ? nullptr : &slot.later", "whole || stage_ >= 0 ? nullptr : &slot.later")],
           "what is early is right",
           FLAGS + " --schedule zb-h1", "test_parallel", "BubbleTest.*"),
]
