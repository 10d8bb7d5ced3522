// The executor takes as long as the simulation says: stages on threads whose layers sleep, on links
// of known latency. `--gtest_also_run_disabled_tests` measures all schedules on 2 to 8 stages.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/simulate.h"
#include "tests/support/link_comm.h"
#include "tests/support/slow_layer.h"

namespace triax::parallel {
namespace {

/// Seconds of a step, and what the layers slept in all: longer than they are told to.
struct Measured {
  double time = 0, slept = 0;
};

/// Of one warm step; every action of a whole stage sleeps for `unit`.
Measured measure(const Schedule& schedule, const PipelineShape& shape, double unit,
                 double latency) {
  Measured all;
  std::mutex lock;
  test::run_linked_ranks(shape.stages, {.latency = latency}, [&](Communicator& world) {
    Mesh mesh(world, {.pp = shape.stages});
    double each = unit / shape.chunks;
    test::SlowModel model(shape.virtual_stages(), {each, each, each}, 1);
    model.materialize(cpu, f32, 1);
    std::vector<int64_t> counts(size_t(shape.virtual_stages()), 1);
    Pipeline pipeline(mesh, layers_of_stage(model.layers(), counts, shape, world.rank()),
                      {.schedule = schedule, .boundaries = {{.shape = {1}}}});
    auto batch = [](int) { return nn::Batch{}; };
    pipeline.infer({.micros = 1, .batch = batch});
    double before = model.worked();
    world.barrier();
    double mine = test::seconds([&] { pipeline.train({.micros = shape.micros, .batch = batch}); });
    std::lock_guard guard(lock);
    all.time = std::max(all.time, mine);
    all.slept += model.worked() - before;
  });
  return all;
}

/// How much longer a step takes than its simulation, whose actions take as long as those of the
/// step did on average.
double excess(const std::string& name, int stages, double unit) {
  Schedule schedule = schedule_named(name);
  PipelineShape shape{stages, schedule.chunks, 2 * stages, schedule.placement};
  double latency = 0.1 * unit;
  Measured got = measure(schedule, shape, unit, latency);
  double each = got.slept / (3.0 * shape.virtual_stages() * shape.micros);
  Simulation s = simulate(lists_of(schedule, shape), shape, {each, each, each, latency});
  return got.time / s.time - 1;
}

TEST(Executor, TakesAsLongAsTheSimulation) {
  for (const std::string& name : {"1f1b", "zb-interleaved", "zb-v"})
    EXPECT_LE(test::least(0.02, [&] { return std::abs(excess(name, 2, 0.02)); }), 0.02) << name;
}

TEST(Executor, DISABLED_OfEverySchedule) {
  for (auto& name : schedule_names())
    for (int stages : {2, 3, 4, 6, 8}) {
      double worst = 0, sum = 0;
      for (int i = 0; i < 3; ++i) {
        double now = excess(name, stages, 0.02);
        if (std::abs(now) > std::abs(worst)) worst = now;
        sum += now / 3;
      }
      fmt::print("{} on {} stages: {:+.2f} % (worst {:+.2f})\n", name, stages, 100 * sum,
                 100 * worst);
      EXPECT_LE(std::abs(worst), 0.02);
    }
}

}  // namespace
}  // namespace triax::parallel
