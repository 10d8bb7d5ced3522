// Settles, before anything is built, what a run is, and checks that all ranks mean the same.
#include "triax/core/check.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/train/options/options.h"
#include "triax/parallel/train/runs/agreement.h"
#include "triax/parallel/train/trainer.h"

namespace triax::parallel {
namespace {

Facts facts_of(const Task& task, const StepOptions& o) {
  return probe(task.build, batch_like(task, o.micro_batch), probe_options(o));
}

/// True if a probe shows that the model may be sharded like this.
bool fits(const Task& task, const StepOptions& o, const MeshShape& shape) try {
  StepOptions on = o;
  on.mesh = shape;
  return shape.pp * o.chunks <= std::ssize(facts_of(task, on).layers());
} catch (const Error&) {
  return false;
}

Settings settings_of(TrainOptions& o, const Task& task) {
  return joined({train_settings(o), task.settings});
}

/// Returns a fingerprint of the samples themselves, because `identity()` may be only a name. Ranks
/// that read different samples would train on the inputs of one and the targets of another.
std::map<std::string, std::string> data_of(const Task& task, int64_t samples) {
  std::string first = digest(batch_like(task, samples)), again = digest(batch_like(task, samples));
  check_input(first == again, Exit::config,
              "samples: asked twice for samples 0 to {}, the batch is {} and then {}\n"
              "  batch() must be a function of the indices alone, augmented() of the indices and "
              "the serial numbers. Draw what is random by them: random::uniform(key, index, n).",
              samples - 1, first, again);
  double weight = 0;
  for (int64_t i = 0; i < samples; ++i) weight += task.samples->weight(i % task.samples->count());
  return {{"values of the first batch", fmt::format("{} weight {}", first, weight)}};
}

}  // namespace

ResolvedRun resolve_run(Task given, const TrainOptions& options, World& world) {
  ResolvedRun run{std::move(given), options, {}};
  Task& task = run.task;
  TrainOptions& o = run.options;
  Facts& facts = run.facts;
  Communicator& ranks = world.host();
  std::map<std::string, std::string> data;
  together(ranks, [&] {
    check_task(task);
    resolve(o, world.size());
    check_values(settings_of(o, task));
    check_options(o, world.size(), [&](const MeshShape& s) { return fits(task, o.step, s); });
    facts = facts_of(task, o.step);
    task.identity = identity_of(task);
    data = data_of(task, o.step.micro_batch);
  });
  auto told = values_of(settings_of(o, task));
  told.merge(identity_of(task));
  told.merge(schedule_content(o.step));
  told.merge(data);
  told["shapes of parameters"] = facts.parameters();
  told["program (build id)"] = build_id();
  if (o.step.bitwise) told["instruction level"] = backend(cpu).name();
  check_agreement(ranks, told);
  return run;
}

}  // namespace triax::parallel
