// The idle time of real stages, ranks on threads, is what theory says: simulate_test.cpp has the
// same of lists alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "tests/support/link_comm.h"
#include "tests/support/overlay.h"
#include "tests/support/slow_layer.h"
#include "tests/support/timed_pipeline.h"
#include "triax/parallel/pipeline/pipeline.h"
#include "triax/parallel/pipeline/simulate.h"
#include "triax/parallel/pipeline/synthesis/synthesis.h"

namespace triax::parallel::bubble_test {

constexpr double unit = 0.03;  // seconds that a stage takes for one forward

/// Idle time of each stage from the common start to the common end of a step, in units. Forward,
/// gradient of the input and gradient of the weights of a stage all take one; `latency` is that of
/// a handover, in units.
std::vector<double> idle(const Schedule& schedule, const PipelineShape& shape,
                         double latency = 0.003) {
  std::vector<double> worked(static_cast<size_t>(shape.stages));
  double time = 0;
  std::mutex lock;
  test::run_linked_ranks(shape.stages, {.latency = latency * unit}, [&](Communicator& world) {
    Mesh mesh(world, {.pp = shape.stages});
    double each = unit / shape.chunks;
    test::SlowModel model(shape.virtual_stages(), {.forward = each, .input = each, .weight = each},
                          1);
    model.materialize(cpu, f32, 1);
    std::vector<int64_t> counts(size_t(shape.virtual_stages()), 1);
    Pipeline pipeline(mesh, layers_of_stage(model.layers(), counts, shape, world.rank()),
                      {.schedule = schedule, .boundaries = {{.shape = {1}}}});
    world.barrier();
    double mine = test::seconds([&] {
      pipeline.train({.micros = shape.micros, .batch = [](int) { return nn::Batch{}; }});
    });
    std::lock_guard guard(lock);
    worked[size_t(world.rank())] = model.worked();
    time = std::max(time, mine);
  });
  for (double& w : worked) w = (time - w) / unit;
  return worked;
}

/// The idle time of the stage that was idle longest, near `expected`.
double bubble(const Schedule& schedule, const PipelineShape& shape, double expected) {
  double most = 0.5 + 0.15 * expected;  // units of the machine's own
  double got = test::least(expected + most, [&] {
    auto of = idle(schedule, shape);
    for (double units : of) EXPECT_GE(units, expected - 0.3);
    return *std::max_element(of.begin(), of.end());
  });
  EXPECT_LE(got, expected + most);
  return got;
}

TEST(BubbleTest, RealStagesAreIdleAsLongAsTheorySays) {
  for (int p : {2, 4}) {
    SCOPED_TRACE(testing::Message() << p << " stages");
    PipelineShape plain{.stages = p, .micros = p}, chunked = plain;
    chunked.chunks = 2;
    double whole = bubble(one_f_one_b, plain, 3 * (p - 1));
    double halves = bubble(interleaved, chunked, 1.5 * (p - 1));
    double filled = bubble(zb_h1, plain, p - 1);
    EXPECT_LT(halves, whole);
    EXPECT_LT(filled, halves);
  }
}

// A stage that sends computes meanwhile: if it waited, each micro-batch would cost half a unit
// more.
TEST(BubbleTest, SendsGoOnBesideComputation) {
  constexpr double latency = 0.5;
  PipelineShape shape{.stages = 2, .micros = 6};
  Synthesis found = synthesize(shape, equal_stages(shape, {.latency = latency}),
                               {.cap = {3, 3}, .hold = 0.5, .tries = 500}, 1);
  std::map<std::string, Schedule> schedules{
      {"1f1b", one_f_one_b}, {"zb-h1", zb_h1}, {"found", [&](auto&, int stage) {
                                                  return found.lists[size_t(stage)];
                                                }}};
  for (auto& each : schedules) {
    SCOPED_TRACE(each.first);
    const Schedule& schedule = each.second;
    auto theory = simulate(lists_of(schedule, shape), shape, Durations{.latency = latency});
    double expected = *std::max_element(theory.idle.begin(), theory.idle.end());
    double most = expected + shape.micros * latency / 2;
    double got = test::least(most, [&] {
      auto of = idle(schedule, shape, latency);
      for (size_t i = 0; i < of.size(); ++i) EXPECT_GE(of[i], theory.idle[i] - 0.3);
      return *std::max_element(of.begin(), of.end());
    });
    EXPECT_LE(got, most) << "expected about " << expected;
  }
}

// The executor takes as long as the simulation says. bench/pipeline.cpp measures more stages.

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

// What scripts/overlay.py makes of the trace of a step. What it reads and refuses is tested in
// tests/scripts/overlay_test.py.

// Stages sleep where others compute, so that 8 of them need no 8 cores.
TEST(Overlay, OfStagesThatSleepIsWithinFivePercent) {
  struct Case {
    const char* schedule;
    int stages;
  };
  for (auto [name, stages] : {Case{"1f1b", 2}, {"zb-v", 4}, {"zb-h1", 8}}) {
    auto differs = [&] {
      auto o = test::overlay_of_step(name, stages, 0.01);
      EXPECT_GT(o.simulated, 0);
      EXPECT_LE(o.measured, o.whole);
      return std::max(std::abs(o.measured / o.simulated - 1), std::abs(o.clock / o.measured - 1));
    };
    EXPECT_LE(test::least(0.05, differs), 0.05) << name;
  }
}

}  // namespace triax::parallel::bubble_test
