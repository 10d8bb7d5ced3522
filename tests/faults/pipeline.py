"""Faults of the pipeline. Two stages: embedding and block0; block1 and head. Four micro-batches."""

from fault import INITIAL, Fault, Run, Unseen

PIPELINE = "parallel/pipeline/pipeline.cpp"
FLAGS = "--mesh 1x2x1"

FAULTS = [
    Fault("later_stages_take_another_micro_batch", PIPELINE,
          [("nn::Batch batch = run.batch(a.micro);",
            "nn::Batch batch = run.batch(stage_ > 0 ? run.micros - 1 - a.micro : a.micro);")],
          [Run(FLAGS, "step 1: activation of block1")]),
    Fault("layer_placed_twice", PIPELINE,
          [("begin + counts[size_t(v)]);", "begin + counts[size_t(v)] + (v == 0 && shape.stages > 1));")],
          [Run(FLAGS, "step 1: activation on replicas of block1")]),
    Fault("layer_placed_nowhere", PIPELINE,
          [("begin + counts[size_t(v)]);", "begin + counts[size_t(v)] - (v == 0 && shape.stages > 1));")],
          [Run(FLAGS, f"{INITIAL}: weight of block0.norm1.gamma")]),
    Fault("activation_sent_in_low_precision", PIPELINE,
          [("slot.x = receive(shape, *from);", "slot.x = receive(shape, *from).to(DType::bf16).to(f32);")],
          [Run(FLAGS, "step 1: activation of block1")]),
    Fault("gradient_sent_in_low_precision", PIPELINE,
          [("grad(slot.x).to(options_.dtype)", "grad(slot.x).to(DType::bf16).to(options_.dtype)")],
          [Run(FLAGS, "step 1: gradient of block0.down.bias")]),
    Fault("gradient_not_sent", PIPELINE,
          [("grad(slot.x).to(options_.dtype)", "zeros(boundary_shape(), options_.dtype, cpu)")],
          [Run(FLAGS, "step 1: gradient of block0.down.bias", "it is missing altogether")]),
    Fault("seed_applied_on_every_stage", PIPELINE,
          [("#include <numeric>\n", '#include <numeric>\n\n#include "autograd/ops.h"\n'),
           ("from ? receive(shape, *from)", "from ? receive(shape, *from) * run.seed")],
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
    Unseen("weight_gradients_not_put_off", PIPELINE,
           [("whole ? nullptr : &slot.later", "whole || stage_ >= 0 ? nullptr : &slot.later")],
           "what is early is right",
           FLAGS + " --schedule zb-h1", "test_parallel", "BubbleTest.*"),
]
