// Parity of models that the library has never seen: an MLP whose stages differ, with every ZeRO
// stage, schedule and precision, and with callbacks, an optimizer and a schedule of the program's
// own.
#include "parallel/parity/parity.h"

#include <gtest/gtest.h>

#include "optim/sgd.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

using test::task_of;
using test::tiny_options;

/// The first difference in words; empty if there is none.
std::string difference(const Task& task, const TrainOptions& o) {
  TrainOptions one = reference_of(o);
  auto d = compare_with_reference(task, o, trace(task, one));
  return d ? fmt::format("step {}: {} {}: {}", d->step, d->what, d->name, d->how_much) : "";
}

TEST(AnyModelParity, MeshesZeroAndSchedules) {
  int number = 0;
  for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 4, 1}, {1, 1, 4}, {2, 2, 2}})
    for (int zero : {0, 1, 2, 3})
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        auto o = tiny_options(mesh);
        o.step.zero = Zero(zero), o.step.schedule = schedule, o.steps = 2;
        o.step.micro_batch = 4;
        o.step.sequence_parallel = ++number % 2 == 0;
        o.step.recompute = number % 3 == 0 ? Recompute::block : Recompute::off;
        if (mesh.pp == 1 && schedule != std::string("1f1b")) continue;
        EXPECT_EQ(difference(task_of(), o), "")
            << mesh.dp << mesh.pp << mesh.tp << " ZeRO " << zero << " " << schedule;
      }
}

TEST(AnyModelParity, LowPrecisions) {
  for (DType dtype : {bf16, f16})
    for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}}) {
      auto o = tiny_options(mesh);
      o.step.dtype = dtype, o.step.zero = Zero::optimizer, o.step.micro_batch = 4;
      EXPECT_EQ(difference(task_of(), o), "") << name(dtype) << mesh.dp << mesh.pp << mesh.tp;
    }
}

/// 1F1B with all warm-up forwards that there are.
Actions all_first(const PipelineShape& shape, int stage) { return gpipe(shape, stage); }

TEST(AnyModelParity, OptimizerAndScheduleOfTheProgramsOwn) {
  auto o = tiny_options({.dp = 2, .pp = 2});
  o.step.micro_batch = 2;
  o.step.schedules["mine"] = all_first, o.step.schedule = "mine";
  o.step.zero = Zero::gradients;
  o.step.optimizer = [](const std::vector<optim::Slot>& slots) {
    return std::make_unique<optim::Sgd>(slots, optim::SgdOptions{.momentum = 0.9});
  };
  EXPECT_EQ(difference(task_of(), o), "");
}

TEST(AnyModelParity, WorkersLoadTheSameBatches) {
  auto o = tiny_options({.dp = 2, .pp = 2});
  o.step.micro_batch = 2, o.workers = 2;
  EXPECT_EQ(difference(task_of(), o), "");
}

}  // namespace
}  // namespace triax::parallel
