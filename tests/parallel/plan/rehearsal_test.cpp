// A step on imagined ranks, of models and schedules that the library has never seen.
#include "parallel/plan/rehearsal.h"

#include <gtest/gtest.h>

#include "parallel/plan/plan.h"
#include "tests/support/conv_net.h"

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

struct Tiled : nn::Sequence {  // CPUs compute its second convolution by tiles
  explicit Tiled(const TensorParallel& tp) {
    add<test::ConvNorm>("first", test::ConvNorm::Size{2, 64, 1, 16}, tp);
    add<test::ConvNorm>("second", test::ConvNorm::Size{64, 64, 1, 16}, tp);
    add<test::ConvHead>("head", 4, 64, tp);
  }
};

TEST(Plan, CountsTheWorkingMemoryOfTheHardware) {
  Task task = test::conv_task(16);
  task.build = [](auto& tp) { return std::make_unique<Tiled>(tp); };
  auto activations = [&](const char* hardware) {
    PlanOptions o{.ranks = 1, .hardware = hardware};
    o.train.step.micro_batch = 16, o.given = {"recompute", "sequence-parallel"};
    return plans(task, o).all.at(0).fullest().peaks[memory::activations];
  };
  EXPECT_LT(activations("h100"), activations("cpu"));
  EXPECT_EQ(activations("h100"), activations("a100"));
}

TEST(Plan, LeavesOutWhatTheModelOrAScheduleCannot) {
  PlanOptions o{.ranks = 2, .hardware = "cpu"};
  o.train.step.mesh = {.dp = 0, .pp = 0, .tp = 0};
  o.train.step.micro_batch = 0, o.train.step.global_batch = 8;
  o.train.step.schedule.clear();
  o.train.step.schedules["mine"] = [](const PipelineShape& shape, int stage) {
    return gpipe({shape.stages, 1, shape.micros}, stage);  // whatever chunks it is asked for
  };
  for (auto& p : plans(test::task_of(), o).all) {
    const StepOptions& s = p.options.step;
    EXPECT_NE(s.recompute, Recompute::selective) << "its layers offer nothing to select";
    EXPECT_TRUE(s.schedule != "mine" || s.chunks == 1) << s.chunks;
  }
  o.train.step.schedule = "mine", o.train.step.mesh = {.dp = 1, .pp = 2, .tp = 1};
  auto mine = plans(test::task_of(), o).all;
  EXPECT_FALSE(mine.empty());
  for (auto& p : mine) EXPECT_EQ(p.options.step.chunks, 1);
}

TEST(Plan, OffloadedParametersNeedZero3) {
  PlanOptions o{.ranks = 2, .hardware = "cpu"};
  o.train.step.mesh = {.dp = 0, .pp = 0, .tp = 0};
  o.train.step.micro_batch = 1, o.train.step.offload = Offloaded::parameters;
  for (auto& p : plans(test::task_of(), o).all) EXPECT_EQ(p.options.step.zero, Zero::parameters);
}

struct Whole : nn::Sequence {  // fits any tp
  explicit Whole(const TensorParallel& tp) {
    for (auto* name : {"a", "b"})
      add<nn::Linear>(name, 16, 16, nn::LinearOptions{.shard = tp.whole()});
    add<ClassHead>("head", 4, 16, tp);
  }
};

TEST(Plan, LeavesOutWhereRanksCannotShareWhatBlockSplitKeeps) {
  PlanOptions o{.ranks = 6, .given = {"zero", "sequence-parallel"}};
  o.train.step.mesh = {.dp = 0, .pp = 1, .tp = 0};
  o.train.step.micro_batch = 1, o.train.step.recompute = Recompute::block_split;
  o.train.step.chunks = 1;
  Plans found = plans(test::task_of<Whole>(), o);
  ASSERT_EQ(found.all.size(), 1u);
  EXPECT_EQ(found.all[0].options.step.mesh.tp, 2);
  EXPECT_EQ(found.refusals[1].find("layer b: recompute=block-split: tp=3"), 0u)
      << found.refusals[1];
}

}  // namespace
}  // namespace triax::parallel
