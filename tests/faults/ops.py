"""Faults of tensors, kernels and autograd. They are alike on one rank and on a mesh."""

from fault import Fault, Run, Unseen

ENGINE = "autograd/engine.cpp"
WHY, FLAGS = "one rank has it too", "--mesh 2x1x1"

FAULTS = [
    Fault("hooks_fire_at_every_part", ENGINE,
          [("} else if (--awaited_[input.get()] == 0) {\n    awaited_.erase(input.get());",
            "} else {\n    if (--awaited_[input.get()] == 0) awaited_.erase(input.get());")],
          # The table is used by the embedding and by the head: two parts of one gradient.
          [Run("--mesh 2x1x1", r"exit status 70: .*backward pass 2 of tokens\.table; expected 1[\s\S]*")]),
]

UNSEEN = [
    Unseen("gradient_of_a_norm_without_its_mean", "core/cpu/rows/norm.cpp",
           [("rstd * (g - a - (load(x[i]) - mean) * b)", "rstd * (g - A(0) * a - (load(x[i]) - mean) * b)")],
           WHY, FLAGS, "test_autograd", "*RowsAndNorms*"),
    Unseen("one_branch_of_a_diamond_lost", ENGINE,
           [("  if (held.defined()) return add_to(held, part);\n", "")],
           WHY, FLAGS, "test_autograd", "*GraphShapes*"),
    Unseen("gradients_are_added_to_views", ENGINE,
           [("part.to(p.dtype).contiguous();", "part.to(p.dtype);")],
           "no op of minigpt returns a view", FLAGS, "test_autograd", "*GraphShapes*"),
    Unseen("leaves_share_their_gradient", ENGINE,
           [("  if (meta && !part.exclusive()) part = clone(part);\n", "")],
           "leaves of a run have buckets", FLAGS, "test_autograd", "EngineTest.TheGradientOfALeafIsItsOwn"),
    Unseen("slope_of_gelu_lost_in_the_product", "core/backend.cpp",
           [("  if (!p.gelu_of.defined()) return on.matmul({p.a, p.b, p.c, p.write});",
             "  return on.matmul({p.a, p.b, p.c, p.write});")],
           "one rank loses it too", FLAGS, "test_core", "*SlopesAndSums*"),
    Unseen("remade_after_gelu_has_read_it", "autograd/recompute.cpp",
           [("if (x.defined() && x.storage() != made.storage())", "if (x.defined())")],
           "no run drops what GELU reads", FLAGS, "test_autograd", "*RemakesInFrontOfGelu*"),
    Unseen("a_loss_that_is_not_finite_updates", "core/backend.cpp",
           [("*static_cast<const StepTotals*>(totals.data()), p);",
             "{0, totals.data<double>()[1], totals.data<double>()[2]}, p);")],
           "every loss of a run is finite", FLAGS, "test_examples", "Step.*"),
    Unseen("rules_outlive_their_backward", "autograd/record.cpp",
           [("  rule = nullptr;\n", "")],
           WHY, FLAGS, "test_examples", "Sharding.SchedulesKeep*:Recompute.*"),
    Unseen("overwritten_values_go_unnoticed", "core/tensor.cpp",
           [("  x.storage()->note_write();\n", "")],
           "minigpt overwrites nothing that an op keeps", FLAGS, "test_autograd", "Written.*"),
    Unseen("gradients_of_stretched_leaves_rounded", "autograd/ops/common.h",
           [("sum_to(x, shape, into.dtype(i))", "sum_to(x, shape)")],
           "minigpt stretches no leaf", FLAGS + " --precision fp16", "test_autograd", "EngineTest.StretchedLeaves*"),
    Unseen("ids_up_to_the_size_accepted", "autograd/ops/select.cpp",
           [("values[i] < limit) &&", "values[i] <= limit) &&")],
           "no token of a run is out of range", FLAGS, "test_autograd", "*Indexing*"),
]
