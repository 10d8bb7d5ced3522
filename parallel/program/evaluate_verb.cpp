#include <cmath>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/program/verbs.h"
#include "triax/parallel/train/runs/initial_weights.h"

namespace triax::parallel {
namespace {

/// Prints what a validation finds, with eight digits: it is compared with other programs.
void print_result(const Task& task, const Trainer& trainer, double loss) {
  double targets = 0;
  for (int64_t i = 0; i < task.held_out->count(); ++i) targets += task.held_out->weight(i);
  fmt::print("loss {:.8g}", loss);
  if (task.unit == "tokens") fmt::print("  perplexity {:.8g}", std::exp(loss));
  for (auto& [name, score] : trainer.scores()) fmt::print("  {} {:.8g}", name, score);
  fmt::print("  over {:.0f} targets of {}\n", targets, counted(task.held_out->count(), "sample"));
}

int evaluate(ProgramOptions& p, TrainOptions& o, const Invocation& call) {
  check_input(
      !o.init.empty(), Exit::usage,
      "evaluate: checkpoint is not given\n  For example: {} evaluate --checkpoint runs/mine",
      p.name);
  o.init = take_checkpoint(p, o.init, call);
  Task task = p.task();
  task.settings = p.settings;
  check_input(task.held_out != nullptr, Exit::data,
              "evaluate: there are no held-out samples; expected data to evaluate on");
  task.samples = task.held_out;
  on_ranks(o.launch, call.argc, call.argv, [&](World& world) {
    ResolvedRun run = resolve_run(task, o, world);
    if (world.rank() == 0)
      fmt::print("{}{}{}{}", world.notices(), describe(run.options.step.mesh), task.description,
                 fmt::format("weights: {}\n", o.init));
    Trainer trainer(std::move(run), world);
    double loss = trainer.validate().value();
    if (world.rank() == 0) print_result(task, trainer, loss);
  });
  return 0;
}

}  // namespace

Verb evaluate_verb(ProgramOptions& p, std::string_view asked) {
  auto o = std::make_shared<TrainOptions>(p.train);
  o->steps = 1, o->lr.warmup = 0;
  if (asked == "evaluate" && p.evaluate_defaults) p.evaluate_defaults();
  SettingGroup own("Evaluation");
  own.add(
         "checkpoint|ckpt|ckpt-path|model|init", "DIR",
         "RUN/step-N, a run directory, whose newest is taken, or what --init of `train` takes; its "
         "model settings are the defaults",
         &o->init, {.shown = "none, must be given"})
      .add(weights_setting("Evaluation", o->init_weights));
  return {
      .name = "evaluate",
      .what = "Computes the loss of a checkpoint over held-out data, on any mesh.",
      .settings = joined(
          {own, p.evaluate_settings, p.settings,
           only(train_settings(*o),
                {"config",  "precision", "micro-batch",       "dp",        "pp",        "ep",
                 "cp",      "tp",        "sequence-parallel", "zero",      "chunks",    "schedule",
                 "cp-form", "placement", "bitwise",           "tp-slices", "row-parts", "comm",
                 "ranks",   "device",    "nondeterministic"})}),
      .examples = {p.name + " evaluate --checkpoint runs/mine",
                   p.name + " evaluate --checkpoint runs/mine --comm threads --ranks 4 --tp 2"},
      .run = [&p, o](const Invocation& call) { return evaluate(p, *o, call); },
      .elsewhere = "eval|validate|test|perplexity"};
}

}  // namespace triax::parallel
