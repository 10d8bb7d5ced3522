// The executor takes as long as the simulation says. bench/pipeline.cpp measures more stages.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/timed_pipeline.h"

namespace triax::parallel {
namespace {

TEST(Executor, TakesAsLongAsTheSimulation) {
  for (auto& name : schedule_names()) {
    auto apart = [&] { return std::abs(test::longer_than_simulated(name, 2, 0.02)); };
    EXPECT_LE(test::least(0.02, apart), 0.02) << name;
  }
}

}  // namespace
}  // namespace triax::parallel
