"""Faults of what moves tensors between ranks and no run of minigpt calls."""

from fault import Unseen

WHY = "minigpt has no all_to_all"
FLAGS = "--mesh 2x1x1"

UNSEEN = [
    Unseen("slices_read_where_they_are_written", "parallel/comm/movement.cpp",
           [("copy(b.from[size_t(sender)] + slice.from + s.mine,",
             "copy(b.from[size_t(sender)] + slice.to + s.mine,")],
           WHY, FLAGS, "test_parallel", "*/Collectives.OnThreads/*"),
]
