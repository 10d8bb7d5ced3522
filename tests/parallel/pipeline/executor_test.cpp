// The executor takes as long as the simulation says. bench/pipeline.cpp measures more stages.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/timed_pipeline.h"

namespace triax::parallel {
namespace {

double apart(const test::TimedPipeline& pipeline) {
  return test::least(0.02, [&] { return std::abs(test::longer_than_simulated(pipeline)); });
}

TEST(Executor, TakesAsLongAsTheSimulation) {
  for (int stages : {2, 5})
    for (auto& name : schedule_names())
      EXPECT_LE(apart(test::TimedPipeline::equal(name, stages, 0.02)), 0.02)
          << name << " on " << stages;
}

// Stages are unequal, so that the order of what they do matters.
TEST(Executor, AlsoOfASynthesizedSchedule) {
  PipelineShape shape{4, 1, 8};
  StageTimes times(4, {1, 1.2, 0.8, 0.1});
  times[2] = {1.5, 1.5, 1, 0.1};
  Budget budget{.cap = std::vector<double>(4, 6), .hold = 0.5, .tries = 200};
  auto found = synthesize(shape, times, budget, 1);
  for (auto& built_in : {zb_h1, zb_2p})
    ASSERT_LT(found.cost, cost_of(simulate(lists_of(built_in, shape), shape, times), {}));
  ScheduleFile file{shape, times, budget, found.cost, found.bound, found.lists};
  EXPECT_LE(apart(test::TimedPipeline::of(file, 0.06)), 0.02);
}

}  // namespace
}  // namespace triax::parallel
