#pragma once
#include <algorithm>
#include <fstream>
#include <mutex>
#include <string>

#include "tests/support/link_comm.h"
#include "tests/support/slow_layer.h"
#include "triax/core/check.h"
#include "triax/parallel/pipeline/pipeline.h"
#include "triax/parallel/pipeline/simulate.h"
#include "triax/parallel/pipeline/synthesis/schedule_file.h"
#include "triax/parallel/train/watch/chrome_trace.h"

namespace triax::test {

/// Seconds of a step, and what its layers slept in all: longer than they are told to.
struct StepTime {
  double step = 0, slept = 0;
};

/// What a stage's thread does around its step.
using AroundStep = std::function<void(int stage, const std::function<void()>& step)>;

/// A schedule, and what its stages are to take. All links have the latency of the first one.
struct TimedPipeline {
  parallel::Schedule schedule;
  parallel::PipelineShape shape;
  parallel::StageTimes times;

  /// Of 2 * stages micro-batches. Every pass through a whole stage takes `unit` seconds, a link a
  /// tenth of it.
  static TimedPipeline equal(const std::string& name, int stages, double unit) {
    auto schedule = parallel::schedule_named(name);
    parallel::PipelineShape shape{stages, schedule.chunks, 2 * stages, schedule.placement};
    auto times = parallel::equal_stages(shape, {unit, unit, unit, 0.1 * unit});
    return {schedule, shape, times};
  }
  /// That of a file, slowed down until the busiest stage takes `unit` seconds for all passes of a
  /// micro-batch.
  static TimedPipeline of(const parallel::ScheduleFile& file, double unit) {
    double slower = unit * file.shape.micros / parallel::busiest(file.shape, file.times);
    auto times = file.times;
    for (auto& t : times)
      t = {slower * t.forward, slower * t.backward_input, slower * t.backward_weight,
           slower * file.times[0].latency};
    return {parallel::schedule_from(file, "found"), file.shape, times};
  }
};

/// A step whose stages are threads and whose passes sleep.
inline StepTime time_step(
    const TimedPipeline& p, const AroundStep& around = [](int, auto& step) { step(); }) {
  StepTime all;
  std::mutex lock;
  std::vector<SlowLayer::Times> passes;
  for (auto& t : p.times) passes.push_back({t.forward, t.backward_input, t.backward_weight});
  run_linked_ranks(
      p.shape.stages, {.latency = p.times[0].latency}, [&](parallel::Communicator& world) {
        parallel::Mesh mesh(world, {.pp = p.shape.stages});
        SlowModel model(passes, 1);
        model.materialize(cpu, f32, 1);
        std::vector<int64_t> counts(passes.size(), 1);
        parallel::Pipeline pipeline(
            mesh, parallel::layers_of_stage(model.layers(), counts, p.shape, world.rank()),
            {.schedule = p.schedule, .boundaries = {{.shape = {1}}}});
        auto batch = [](int) { return nn::Batch{}; };
        pipeline.infer({.micros = 1, .batch = batch});  // what only a first run does
        double before = model.worked();
        world.barrier();
        auto step = [&] { pipeline.train({.micros = p.shape.micros, .batch = batch}); };
        double mine = seconds([&] { around(world.rank(), step); });
        std::lock_guard guard(lock);
        all.step = std::max(all.step, mine);
        all.slept += model.worked() - before;
      });
  return all;
}

/// A step as time_step() makes it. Writes the trace that `--profile` would, and returns the seconds
/// that the clock says.
inline double trace_step(const std::string& path, const std::string& name, int stages,
                         double unit) {
  auto p = TimedPipeline::equal(name, stages, unit);
  parallel::TraceHead head{1, 1, name, p.shape.placement, {}};
  for (int s = 0; s < stages; ++s)
    head.ranks.push_back(fmt::format(
        R"({{"rank":{0},"dp":0,"pp":{0},"tp":0,"busy":0,"communicating":0,"waiting":0}})", s));
  std::vector<std::string> events{size_t(stages)};
  int64_t zero = Profile::now();
  StepTime time = time_step(p, [&](int stage, auto& step) {
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

/// By which share a step takes longer than its simulation, whose passes take what those of the step
/// did: each is longer than it was told by the same time, which waking up takes.
inline double longer_than_simulated(TimedPipeline p) {
  StepTime got = time_step(p);
  double told = 0;
  for (auto& t : p.times) told += t.forward + t.backward_input + t.backward_weight;
  double late = (got.slept / p.shape.micros - told) / (3.0 * double(p.times.size()));
  for (auto& t : p.times) t.forward += late, t.backward_input += late, t.backward_weight += late;
  auto lists = lists_of(p.schedule, p.shape);
  return got.step / simulate(lists, p.shape, p.times).time - 1;
}

}  // namespace triax::test
