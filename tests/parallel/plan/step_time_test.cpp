// What a step is predicted to take where kernels are short.
#include "parallel/plan/step_time.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

StepTime of(const Hardware& hardware) {
  Task task = test::task_of();
  StepOptions o;
  o.mesh = {.dp = 1, .pp = 1, .tp = 2};
  o.chunks = 1, o.micro_batch = o.global_batch = 4;
  return StepTimes(task, hardware)(o);
}

TEST(StepTimes, OfGpusAreAtLeastTheHostsAndHideCollectivesBehindThem) {
  Hardware h = hardware_named("h100");
  h.launch = 0;
  StepTime quick = of(h);
  EXPECT_GT(quick.tensor, 0);
  h.launch = h.kernel_start;  // both matter
  StepTime both = of(h);
  EXPECT_GT(both.compute, 1.1 * quick.compute);
  EXPECT_LT(both.compute, 2 * quick.compute);
  EXPECT_LT(both.tensor, quick.tensor);
  EXPECT_GT(both.tensor, 0.1 * quick.tensor);
  h.launch = 1e3 * h.kernel_start;
  StepTime slow = of(h);
  EXPECT_NEAR(slow.compute / 1e3, quick.compute, 0.05 * quick.compute) << "starts, and little else";
  EXPECT_LT(slow.tensor, 1e-6 * quick.tensor);
}

TEST(StepTimes, OfCpusHideNothing) {
  Hardware h = hardware_named("cpu");
  StepTime quick = of(h);
  h.launch = 1e3 * h.kernel_start;
  StepTime slow = of(h);
  EXPECT_GT(slow.compute, 100 * quick.compute);
  EXPECT_EQ(slow.tensor, quick.tensor);
}

}  // namespace
}  // namespace triax::parallel
