#pragma once
#include <algorithm>
#include <fstream>
#include <mutex>
#include <string>

#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/train/chrome_trace.h"
#include "tests/support/link_comm.h"
#include "tests/support/slow_layer.h"

namespace triax::test {

/// Seconds of a step, and what its layers slept in all: longer than they are told to.
struct StepTime {
  double step = 0, slept = 0;
};

/// What a stage's thread does around its step.
using AroundStep = std::function<void(int stage, const std::function<void()>& step)>;

/// A step of stages on threads: every pass through a whole stage sleeps for `unit`, and links have
/// this latency.
inline StepTime time_step(
    const parallel::Schedule& schedule, const parallel::PipelineShape& shape, double unit,
    double latency, const AroundStep& around = [](int, auto& step) { step(); }) {
  StepTime all;
  std::mutex lock;
  run_linked_ranks(shape.stages, {.latency = latency}, [&](parallel::Communicator& world) {
    parallel::Mesh mesh(world, {.pp = shape.stages});
    double each = unit / shape.chunks;
    SlowModel model(shape.virtual_stages(), {each, each, each}, 1);
    model.materialize(cpu, f32, 1);
    std::vector<int64_t> counts(size_t(shape.virtual_stages()), 1);
    parallel::Pipeline pipeline(
        mesh, parallel::layers_of_stage(model.layers(), counts, shape, world.rank()),
        {.schedule = schedule, .boundaries = {{.shape = {1}}}});
    auto batch = [](int) { return nn::Batch{}; };
    pipeline.infer({.micros = 1, .batch = batch});  // what only a first run does
    double before = model.worked();
    world.barrier();
    auto step = [&] { pipeline.train({.micros = shape.micros, .batch = batch}); };
    double mine = seconds([&] { around(world.rank(), step); });
    std::lock_guard guard(lock);
    all.step = std::max(all.step, mine);
    all.slept += model.worked() - before;
  });
  return all;
}

/// The shape of the steps below: 2 * stages micro-batches.
inline parallel::PipelineShape shape_of(const parallel::Schedule& schedule, int stages) {
  return {stages, schedule.chunks, 2 * stages, schedule.placement};
}

/// A step as time_step() makes it, with a latency of a tenth of `unit`. Writes the trace that
/// `--profile` would, and returns the seconds that the clock says.
inline double trace_step(const std::string& path, const std::string& name, int stages,
                         double unit) {
  auto schedule = parallel::schedule_named(name);
  auto shape = shape_of(schedule, stages);
  parallel::TraceHead head{1, 1, name, schedule.placement, {}};
  for (int s = 0; s < stages; ++s)
    head.ranks.push_back(fmt::format(
        R"({{"rank":{0},"dp":0,"pp":{0},"tp":0,"busy":0,"communicating":0,"waiting":0}})", s));
  std::vector<std::string> events{size_t(stages)};
  int64_t zero = Profile::now();
  StepTime time = time_step(schedule, shape, unit, 0.1 * unit, [&](int stage, auto& step) {
    Profile profile;
    set_profile(&profile);
    {
      ProfileRange whole("step 1"), without_validation("step");
      step();
    }
    set_profile(nullptr);
    profile.settle();
    events[size_t(stage)] =
        parallel::trace_events(profile, {stage, fmt::format("rank {}", stage), zero});
  });
  std::ofstream(path) << trace_text(head, events);
  return time.step;
}

/// By which share a step of 2 * stages micro-batches, with a latency of a tenth of `unit`, takes
/// longer than its simulation, whose passes take what those of the step took on average.
inline double longer_than_simulated(const std::string& name, int stages, double unit) {
  auto schedule = parallel::schedule_named(name);
  auto shape = shape_of(schedule, stages);
  double latency = 0.1 * unit;
  StepTime got = time_step(schedule, shape, unit, latency);
  double each = got.slept / (3.0 * shape.virtual_stages() * shape.micros);
  auto lists = lists_of(schedule, shape);
  parallel::Durations times{each, each, each, latency};
  return got.step / simulate(lists, shape, times).time - 1;
}

}  // namespace triax::test
