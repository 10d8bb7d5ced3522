#include "parallel/pipeline/launch_order.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "parallel/pipeline/check_schedule.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

std::string hang(const Schedule& schedule, const PipelineShape& shape) {
  return hang_over_nccl(lists_of(schedule, shape), shape);
}

/// As another simulator says, written in Python. Interleaved schedules round the ring hang where
/// the last group is not full and two full ones came before it.
TEST(LaunchOrder, WhatHangsOverNccl) {
  for (const std::string& name : schedule_names()) {
    Schedule schedule = schedule_named(name);
    bool rounds = name == "interleaved" || name == "zb-interleaved";
    for (int stages = 2; stages <= 8; ++stages)
      for (int micros = 1; micros <= 4 * stages + 1; ++micros)
        for (int chunks : rounds ? std::vector{2, 3} : std::vector{schedule.chunks}) {
          PipelineShape shape{stages, chunks, micros, schedule.placement};
          bool expected = rounds && micros > 2 * stages && micros % stages != 0;
          EXPECT_NO_THROW(check_schedule(schedule, shape));
          EXPECT_EQ(!hang(schedule, shape).empty(), expected)
              << name << ", " << stages << " stages, " << micros << " micro-batches";
        }
  }
}

TEST(LaunchOrder, ForwardsDoNotHang) {
  for (Placement placement : {Placement::ring, Placement::v})
    for (int stages = 1; stages <= 5; ++stages)
      for (int micros = 1; micros <= 4 * stages + 1; ++micros)
        EXPECT_EQ(hang(forward_only, {stages, 2, micros, placement}), "");
}

/// A stage that sends twice before the other takes the first, and then waits for what comes only
/// behind its second send: with receives posted ahead of time it goes on.
TEST(LaunchOrder, SaysWhoWaitsForWhom) {
  EXPECT_EQ(hang(interleaved, {.stages = 2, .chunks = 2, .micros = 9}),
            "stage 0, position 25 (forward of micro-batch 6, chunk 1), waits for stage 1 to take "
            "the gradient of micro-batch 4 from virtual stage 2 to 1; "
            "stage 1, position 24 (backward of micro-batch 4, chunk 0), waits for stage 0 to take "
            "the activation of micro-batch 6 from virtual stage 1 to 2");
}

TEST(LaunchOrder, NamesTheNextNumberThatWorks) {
  auto refused = [](const Schedule& schedule, PipelineShape shape, const std::string& cure) {
    test::expect_config_error([&] { check_over_nccl(schedule, shape); },
                              {fmt::format("schedule: {} micro-batches on {} stages hang over NCCL",
                                           shape.micros, shape.stages),
                               "stage 0, position ", cure, "1f1b"});
  };
  refused(interleaved, {2, 2, 5}, "Take 6 micro-batches (--global-batch divided by dp and");
  refused(interleaved, {2, 2, 9}, "Take 10 micro-batches");
  refused(interleaved, {4, 2, 9}, "Take 12 micro-batches");
  refused(interleaved, {4, 2, 13}, "Take 16 micro-batches");
  refused(zb_interleaved, {8, 3, 25}, "Take 32 micro-batches");
  EXPECT_NO_THROW(check_over_nccl(interleaved, {2, 2, 6}));

  // Lists that are made for one number, as those of a file are.
  PipelineShape shape{2, 2, 5};
  Schedule fixed = [=](const PipelineShape& s, int stage) {
    if (s != shape) fail(Exit::config, "for 5 micro-batches");
    return interleaved(s, stage);
  };
  refused(fixed, shape, "Take another --schedule");
}

}  // namespace
}  // namespace triax::parallel
