// What scripts/overlay.py makes of the trace of a step. What it reads and refuses is tested in
// tests/scripts/overlay_test.py.
#include "tests/support/overlay.h"

#include <gtest/gtest.h>

namespace triax::parallel {
namespace {

// Stages sleep where others compute, so that 8 of them need no 8 cores.
TEST(Overlay, OfStagesThatSleepIsWithinFivePercent) {
  constexpr double unit = 0.01;
  struct Case {
    const char* schedule;
    int stages;
  };
  for (auto [name, stages] : {Case{"1f1b", 2}, {"zb-v", 4}, {"zb-h1", 8}}) {
    auto apart = [&] {
      auto o = test::overlay_of_step(name, stages, unit);
      EXPECT_GT(o.simulated, 0);
      EXPECT_LE(o.measured, o.whole);
      return std::max(std::abs(o.measured / o.simulated - 1), std::abs(o.clock / o.measured - 1));
    };
    EXPECT_LE(test::least(0.05, apart), 0.05) << name;
  }
}

}  // namespace
}  // namespace triax::parallel
