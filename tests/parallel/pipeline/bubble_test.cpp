// The idle time of real stages, ranks on threads, is what theory says: simulate_test.cpp has the
// same of lists alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/synthesis/synthesis.h"
#include "tests/support/link_comm.h"
#include "tests/support/slow_layer.h"

namespace triax::parallel {
namespace {

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

}  // namespace
}  // namespace triax::parallel
