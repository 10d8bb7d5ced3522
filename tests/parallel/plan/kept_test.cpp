// What schedules keep, and how long it takes until they keep no more.
#include "parallel/plan/kept.h"

#include <gtest/gtest.h>

#include "parallel/pipeline/simulate.h"
#include "parallel/plan/step_time.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

StepOptions options(const std::string& schedule, int stages, int64_t micros) {
  StepOptions o;
  o.mesh = {.dp = 1, .pp = stages, .tp = 1};
  o.schedule = schedule, o.chunks = schedule_named(schedule).chunks;
  o.micro_batch = 1, o.global_batch = micros;
  return o;
}

TEST(Kept, CountsUntilBothGradientsAreThere) {
  PipelineShape shape{.stages = 4, .chunks = 1, .micros = 20};
  for (int s = 0; s < 4; ++s) {
    EXPECT_EQ(most_kept(one_f_one_b(shape, s)), (Kept{4 - s, 4 - s}));
    EXPECT_EQ(most_kept(gpipe(shape, s)), (Kept{20, 20}));
    EXPECT_EQ(most_kept(zb_h1(shape, s)).held, 4) << s;
  }
  for (int s = 0; s < 4; ++s) {
    Kept twice = most_kept(zb_2p(shape, s));
    EXPECT_EQ(twice.live, 7 - 2 * s);
    EXPECT_EQ(twice.held, 7 + 2 * s);
  }
}

TEST(Kept, FilledAStageKeepsWhatAllMicroBatchesKeep) {
  for (auto& schedule : schedule_names())
    for (int stages : {1, 2, 4, 7}) {
      if (stages == 1 && schedule_named(schedule).chunks > 1) continue;
      StepOptions o = options(schedule, stages, 20 * stages);
      for (int s = 0; s < stages; ++s) {
        PipelineShape whole = o.pipeline(), few = whole;
        few.micros = int(filling(o, s));
        auto& lists = o.schedules.at(schedule);
        EXPECT_EQ(most_kept(lists(few, s)), most_kept(lists(whole, s)))
            << schedule << " on " << stages << ", stage " << s;
        EXPECT_EQ(few.micros == whole.micros, schedule == "gpipe") << schedule << ' ' << few.micros;
      }
    }
}

/// A plan simulates fewer micro-batches than a step has, where further ones change nothing.
TEST(Kept, APlanSeesTheBubbleOfAllMicroBatches) {
  Task task = test::task_of();
  Hardware hardware = hardware_named("cpu");
  StepTimes times(task, hardware);
  for (auto& schedule : schedule_names())
    for (int stages : {2, 3, 8})
      for (int micros : {4 * stages + 1, 5 * stages + 1, 20 * stages, 21 * stages - 1}) {
        StepOptions o = options(schedule, stages, micros);
        SCOPED_TRACE(fmt::format("{}: {} stages, {} micro-batches", schedule, stages, micros));
        PipelineShape whole = o.pipeline();
        double third = 1. / 3 / o.chunks;
        auto lists = lists_of(o.schedules.at(schedule), whole);
        const Bubble& seen = times.bubble(o);
        for (size_t s = 0; s < lists.size(); ++s) EXPECT_EQ(seen.kept[s], most_kept(lists[s])) << s;
        EXPECT_NEAR(seen.idle, simulate(lists, whole, {third, third, third, 0}).time - micros,
                    1e-6);
      }
}

TEST(Kept, APlanOfMillionsOfMicroBatchesSimulatesFew) {
  Task task = test::task_of();
  Hardware hardware = hardware_named("cpu");
  StepTimes times(task, hardware);
  for (auto& schedule : schedule_names()) {
    const Bubble& seen = times.bubble(options(schedule, 8, 100'000'001));
    EXPECT_EQ(seen.kept[0].live > 100, schedule == "gpipe") << schedule;
  }
  EXPECT_EQ(times.bubble(options("gpipe", 8, 100'000'001)).kept[7],
            (Kept{100'000'001, 100'000'001}));
}

TEST(Kept, OfSchedulesOfAProgramAndOfFilesNothingIsKnown) {
  StepOptions o = options("1f1b", 4, 80);
  EXPECT_TRUE(is_built_in(o));
  EXPECT_EQ(filling(o, 0), 6);
  o.schedules["mine"] = one_f_one_b, o.schedule = "mine";
  EXPECT_FALSE(is_built_in(o));
  EXPECT_EQ(filling(o, 0), 80);
}

}  // namespace
}  // namespace triax::parallel
