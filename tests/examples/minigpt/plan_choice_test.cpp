// Which of several plans is chosen: ties, offloading, sizes of micro-batches.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/examples/minigpt/minigpt_run.h"
#include "triax/parallel/plan/candidates.h"
#include "triax/parallel/plan/plan.h"
#include "triax/parallel/plan/step_time.h"

namespace triax::minigpt::plan_choice_test {

using parallel::Plan;
using parallel::PlanOptions;

/// A search that leaves all open.
PlanOptions anything() {
  PlanOptions o;
  leave_open(o.train.step, {"cp", "ep"});
  return o;
}

/// One way to train on so many replicas.
PlanOptions one_way(int dp) {
  PlanOptions o = anything();
  o.train.step.mesh = {.dp = dp}, o.train.step.micro_batch = 1;
  o.given = {"recompute"};
  return o;
}

// The first property that differs decides, whatever those behind it say.
TEST(PlanChoice, ComparesHowSimplePlansAre) {
  using parallel::Candidate;
  const std::function<void(Candidate&)> spoils[] = {
      [](auto& c) { c.mesh = {.dp = 2, .tp = 2}; },
      [](auto& c) { c.zero = parallel::Zero::optimizer; },
      [](auto& c) { c.schedule = "zb-h1"; },
      [](auto& c) { c.recompute = parallel::Recompute::block; },
      [](auto& c) { c.sequence_parallel = true; },
      [](auto& c) { c.chunks = 2; }};
  const Candidate plain{.mesh = {.dp = 4}, .schedule = "1f1b"};
  for (size_t i = 0; i < std::size(spoils); ++i) {
    Candidate better = plain, worse = plain;
    spoils[i](worse);
    for (size_t less = i + 1; less < std::size(spoils); ++less) spoils[less](better);
    EXPECT_TRUE(simpler(better, worse)) << i;
    EXPECT_FALSE(simpler(worse, better)) << i;
    EXPECT_FALSE(simpler(worse, worse)) << i;
  }
  Candidate gpipe = plain;
  gpipe.schedule = "gpipe";
  EXPECT_FALSE(simpler(plain, gpipe) || simpler(gpipe, plain));
}

TEST(PlanChoice, TheFirstIsTheSimplestOfThoseThatAreNearlyAsFast) {
  Job job;
  job.model = {.layers = 4, .heads = 4, .width = 256, .context = 64, .vocab = 96};
  auto task = task_of(job);
  int moved = 0;
  for (int ranks : {2, 4, 8}) {
    PlanOptions o = anything();
    o.ranks = ranks, o.hardware = "cpu", o.train.step.global_batch = 64;
    auto found = plans(task, o);
    parallel::StepTimes times(task, found.hardware);
    auto ways = candidates(o, found.hardware, times).all;
    const Plan& first = found.all.front();
    EXPECT_LE(first.time.total(), 1.02 * ways.front().time.total());
    moved += first.way != 0;
    for (auto& way : ways) {
      bool near = way.time.total() <= 1.02 * ways.front().time.total();
      EXPECT_FALSE(near && simpler(way, ways[first.way])) << way.schedule << way.chunks;
    }
    EXPECT_EQ(plans(task, o).all.front().way, first.way);  // the same each time
  }
  EXPECT_GT(moved, 0);
}

TEST(PlanChoice, OffloadsWhereNothingElseFits) {
  Job job;
  job.model = {.layers = 2, .heads = 2, .width = 64, .context = 16, .vocab = 96};
  auto task = task_of(job);
  PlanOptions o = one_way(1);
  auto h = parallel::hardware_named(o.hardware);
  double whole = plans(task, o).all.front().need(h);
  auto offload = [&](double memory) {
    o.memory = fmt::format("{}B", int64_t(memory));
    return plans(task, o).all.front().options.step.offload;
  };
  EXPECT_EQ(offload(whole), parallel::Offloaded::nothing);
  EXPECT_EQ(offload(0.8 * whole), parallel::Offloaded::optimizer);
  EXPECT_EQ(offload(0.5 * whole), parallel::Offloaded::parameters);
  EXPECT_EQ(offload(0.01 * whole), parallel::Offloaded::nothing);  // it does not help either
  o.given.push_back("offload");
  EXPECT_EQ(offload(0.8 * whole), parallel::Offloaded::nothing);
}

TEST(PlanChoice, TriesAllSamplesOfAReplicaAtOnce) {
  Job job;
  job.model = {.layers = 2, .heads = 2, .width = 32, .context = 16, .vocab = 96};
  auto sizes = [&](int64_t global) {
    PlanOptions o = one_way(2);
    o.train.step.micro_batch = 0, o.train.step.global_batch = global;
    std::set<int64_t> found;
    for (auto& p : plans(task_of(job), o).all) found.insert(p.options.step.micro_batch);
    return found;
  };
  EXPECT_EQ(sizes(24), (std::set<int64_t>{1, 2, 4, 12}));
  EXPECT_EQ(sizes(16), (std::set<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(sizes(2 * 100), (std::set<int64_t>{1, 2, 4}));  // more than 64
}

TEST(PlanChoice, LeavesOpenWhatIsNotFixed) {
  Job job;
  job.set({.dp = 2, .pp = 2, .tp = 2, .zero = 1, .schedule = "zb-h1"});
  parallel::StepOptions s = job.step();
  s.micro_batch = 3, s.global_batch = 24;
  leave_open(s, {"tp", "zero", "schedule"});
  EXPECT_EQ(s.mesh, (parallel::MeshShape{.dp = 0, .pp = 0, .tp = 2, .cp = 0, .ep = 0}));
  EXPECT_EQ(s.schedule, "zb-h1");
  EXPECT_EQ(s.zero, parallel::Zero::optimizer);
  EXPECT_EQ(s.micro_batch, 0);
  EXPECT_EQ(s.global_batch, 24);  // another batch would be another training
}

}  // namespace triax::minigpt::plan_choice_test
