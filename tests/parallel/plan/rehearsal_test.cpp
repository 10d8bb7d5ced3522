// A step on imagined ranks, of models and schedules that the library has never seen.
#include "parallel/plan/rehearsal.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

std::vector<Demand> foreseen(const StepOptions& o) {
  Task task = test::task_of();
  return foresee(task.build, batch_like(task, o.micro_batch), o);
}

StepOptions options(MeshShape mesh) {
  auto o = test::tiny_options(mesh);
  resolve(o, mesh.size());
  return o.step;
}

// Imagined ranks are not over NCCL: a rehearsal takes one step, which is never captured.
TEST(Rehearsal, TakesACapturedStepAsAnyOther) {
  StepOptions o = options({.dp = 2});
  auto plain = foreseen(o);
  o.graph = true;
  EXPECT_EQ(foreseen(o).at(0).peak, plain.at(0).peak);
}

// Whether a pipeline that is full stays so is known of the library's own schedules alone.
TEST(Rehearsal, AScheduleOfTheProgramsOwnIsRunWhole) {
  StepOptions o = options({.pp = 2});
  o.micro_batch = 1, o.global_batch = 16, o.schedule = "gpipe";
  auto whole = foreseen(o);
  o.schedules["mine"] = gpipe, o.schedule = "mine";
  EXPECT_EQ(foreseen(o).at(0).peak, whole.at(0).peak);
}

}  // namespace
}  // namespace triax::parallel
