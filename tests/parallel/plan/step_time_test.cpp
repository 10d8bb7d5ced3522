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

/// The head alone is trained. On a CPU nothing hides behind anything.
TEST(StepTimes, WhatIsFrozenIsNeitherUpdatedNorReduced) {
  Task task = test::task_of();
  Hardware h = hardware_named("cpu");
  h.latency = 0;
  StepTimes times(task, h);
  StepOptions o;
  o.mesh = {.dp = 2, .pp = 1, .tp = 1};
  o.chunks = 1, o.micro_batch = 8, o.global_batch = 16;
  for (int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    o.zero = Zero(zero), o.groups = "";
    StepTime all = times(o);
    o.groups = "head.*:lr=1; *:frozen";
    StepTime head = times(o);
    double part = 64 / double(times.parameters(o)[0].all);  // head: 4 x 16
    EXPECT_EQ(times.parameters(o)[0].trained, 64);
    EXPECT_NEAR(head.update, part * all.update, 1e-9 * all.update);
    double sums = zero == 3 ? (2 + part) / 3 : part;  // of weights, twice, and of gradients
    EXPECT_NEAR(head.data, sums * all.data, 1e-9 * all.data);
    EXPECT_LT(head.compute, all.compute);
  }
  h.latency = 1;  // of 4 layers, the first of which has no parameters: a ring for each use
  o.zero = Zero::parameters;
  EXPECT_NEAR(times(o).data, 2 * 4 + 1, 0.5);
  o.zero = Zero::off;
  EXPECT_NEAR(times(o).data, 1, 0.5);
}

}  // namespace
}  // namespace triax::parallel
