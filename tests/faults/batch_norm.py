"""Faults of batch norm and of what it keeps beside its parameters. No layer of minigpt has either."""

from fault import Unseen

OP, REPLICA, BUFFERS = "autograd/ops/batch_norm.cpp", "parallel/train/step/replica.cpp", "parallel/train/model/buffers.cpp"
WHY = "minigpt has no batch norm"
FLAGS = "--mesh 2x1x1"

UNSEEN = [
    Unseen("statistics_not_summed_over_replicas", OP,
           [("  if (n.over.ranks > 1) n.over.sum_over_ranks(sums);\n  n.mean =", "  n.mean =")],
           WHY, FLAGS, "test_parallel", "BatchNormParity.MeshesAndGroups"),
    Unseen("gradient_statistics_not_summed_over_replicas", OP,
           [("  if (n.over.ranks > 1) n.over.sum_over_ranks(sums);\n  Tensor a =", "  Tensor a =")],
           WHY, FLAGS, "test_parallel", "BatchNormParity.MeshesAndGroups"),
    Unseen("weights_of_a_norm_see_other_replicas", OP,
           [("  if (n.over.ranks > 1) n.over.sum_over_ranks(sums);\n  Tensor a =", "  Tensor a ="),
            ("  Tensors d(3);\n", "  if (n.over.ranks > 1) n.over.sum_over_ranks(sums);\n  Tensors d(3);\n")],
           WHY, FLAGS, "test_parallel", "BatchNormParity.MeshesAndGroups"),
    Unseen("replicas_summed_in_groups_of_others", "parallel/data/replicas.h",
           [("Communicator::Seat{int(rank / ranks), int(rank % ranks)}",
             "Communicator::Seat{int(rank % ranks), int(rank / ranks)}")],
           WHY, FLAGS, "test_parallel", "BatchNormParity.MeshesAndGroups"),
    Unseen("running_statistics_of_this_replica", BUFFERS,
           [("  if (data_.size() > 1) data_.all_reduce(sums_).wait();\n", "")],
           WHY, FLAGS, "test_parallel", "BatchNormParity.MeshesAndGroups"),
    Unseen("running_statistics_not_started_afresh", REPLICA,
           [("  buffers_.begin();\n", "")],
           "minigpt has no batch norm, and one rank does it too",
           FLAGS, "test_parallel", "BatchNormParity.ASkippedStepIsForgotten"),
    Unseen("skipped_step_updates_running_statistics", "nn/buffer.cpp",
           [(".decision = decision}", ".decision = {}}")],
           WHY, FLAGS, "test_parallel", "BatchNormParity.ASkippedStepIsForgotten"),
    Unseen("running_statistics_not_saved", "parallel/train/step/state.cpp",
           [("  std::ranges::move(buffers_.pieces(whose), std::back_inserter(all));\n", "")],
           WHY, FLAGS, "test_parallel", "BatchNormParity.RunningStatisticsGoThroughCheckpoints*"),
    Unseen("accumulated_again_by_recomputation", "nn/buffer.cpp",
           [("  if (autograd::recomputing()) return;\n", "")],
           "minigpt has no batch norm, and a mean of twice the same is the same",
           FLAGS, "test_nn", "BatchNormLayer.RecomputationAccumulatesNothingTwice"),
]
