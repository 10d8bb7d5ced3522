// A step on imagined ranks, of models and schedules that the library has never seen.
#include "triax/parallel/plan/rehearsal.h"

#include <gtest/gtest.h>

#include "tests/support/conv_net.h"
#include "tests/support/tiny_task.h"
#include "triax/parallel/pipeline/simulate.h"
#include "triax/parallel/plan/plan.h"
#include "triax/parallel/plan/step_time.h"

namespace triax::parallel::rehearsal_test {

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

// What schedules keep, and how long it takes until they keep no more.

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

/// A program's own schedule is simulated with all of its micro-batches.
TEST(StepTimes, FewMicroBatchesTellTheTimeOfAll) {
  Task task = test::task_of();
  Hardware hardware = hardware_named("cpu");
  StepTimes times(task, hardware);
  for (auto& schedule : schedule_names())
    for (int stages : {2, 3})
      for (int micros : {5 * stages + 1, 20 * stages, 21 * stages - 1}) {
        StepOptions o = options(schedule, stages, micros);
        o.placement = stages == 2 ? "3,1" : "2,1,1";
        if (o.chunks == 2) o.placement = stages == 2 ? "1,1,1,1" : "1,0,1,0,1,1";
        double few = times(o).total();
        EXPECT_NEAR(times.estimate(o).total() / few, 1, 0.25) << schedule << ' ' << stages;
        o.schedule = "my " + schedule;
        o.schedules[o.schedule] = schedule_named(schedule);
        EXPECT_NEAR(few / times(o).total(), 1, 1e-3) << schedule << ' ' << stages << ' ' << micros;
      }
}

TEST(Kept, OfSchedulesOfAProgramAndOfFilesNothingIsKnown) {
  StepOptions o = options("1f1b", 4, 80);
  EXPECT_TRUE(is_built_in(o));
  EXPECT_EQ(filling(o, 0), 6);
  o.schedules["mine"] = one_f_one_b, o.schedule = "mine";
  EXPECT_FALSE(is_built_in(o));
  EXPECT_EQ(filling(o, 0), 80);
}

// What a step is predicted to take where kernels are short.

StepTime of(const Hardware& hardware, int pieces = 1, bool sequence = false) {
  Task task = test::task_of();
  StepOptions o;
  o.tp_pieces = pieces, o.sequence_parallel = sequence;
  o.mesh = {.dp = 1, .pp = 1, .tp = 2};
  o.chunks = 1, o.micro_batch = o.global_batch = 32;
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

/// Between nodes, where products take as long as what they send, pieces hide most of it; within one
/// node cores move it, and more calls take longer.
TEST(StepTimes, PiecesHideWhatNetworkCardsMove) {
  for (bool sequence : {false, true}) {
    Hardware h = hardware_named("cpu");
    h.latency = h.kernel_start = 0;
    h.bandwidth = 1e15;  // products alone
    EXPECT_EQ(of(h, 4, sequence).tensor, of(h, 1, sequence).tensor);
    h.per_node = 1;
    StepTime whole = of(h, 1, sequence);
    h.network *= whole.tensor / whole.compute;
    whole = of(h, 1, sequence);
    EXPECT_NEAR(whole.tensor, whole.compute, 1e-6 * whole.compute);
    double two = of(h, 2, sequence).tensor, four = of(h, 4, sequence).tensor;
    EXPECT_LT(two, 0.85 * whole.tensor);
    EXPECT_LT(four, two);
    EXPECT_GT(four, 0.2 * whole.tensor) << "the head's, and first pieces";
    h.latency = 1;  // of more calls
    EXPECT_GT(of(h, 4, sequence).tensor, 2.5 * of(h, 1, sequence).tensor);
  }
}

/// With ZeRO 1 weights are gathered behind the next forward, where cards move them.
TEST(StepTimes, WeightsAreGatheredBehindTheNextForward) {
  Task task = test::task_of();
  StepOptions o;
  o.mesh = {.dp = 2, .pp = 1, .tp = 1}, o.zero = Zero::optimizer;
  o.chunks = 1, o.micro_batch = 64, o.global_batch = 128;
  Hardware h = hardware_named("cpu");
  h.latency = 0, h.per_node = 1;
  h.network = 1e15;
  double compute = StepTimes(task, h)(o).compute;
  auto data = [&](double network) {
    h.network = network;
    return StepTimes(task, h)(o).data;
  };
  // A layer of three is gathered in this part of the kernels' time, and all in three times that.
  double rate = 1e15 * data(1e15) / compute;
  EXPECT_NEAR(data(20 * rate), compute / 20, 1e-6 * compute);
  EXPECT_GT(data(rate / 10), 7 * compute) << "most has nothing beside it";
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

}  // namespace triax::parallel::rehearsal_test
