#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triax/parallel/train/callbacks.h"
#include "triax/parallel/train/saver.h"
#include "triax/parallel/train/validation.h"

namespace triax::parallel {

/// A run that every rank agrees on.
struct ResolvedRun {
  Task task;
  TrainOptions options;  ///< resolved
  Facts facts;           ///< the model's
};
/// Resolves the options for the ranks of `world` and checks that ranks agree about them and the
/// data, and that the task's model can be trained with them. Collective. Throws Error 78 on all
/// ranks, 65 for a task without samples.
ResolvedRun resolve_run(Task task, const TrainOptions& o, World& world);

/// Trains a task on this rank's share of a mesh: data, steps, validation, metrics, progress,
/// checkpoints, resume and signals. Everything is collective.
///
///   World world(argc, argv);
///   StopSignal stop;  // without it a signal kills
///   Trainer trainer(task, options, world);
///   return int(trainer.run());
class Trainer : Immovable {
 public:
  /// Resumes if `o.resume` says so; without `o.out`, only reads. `world` must outlive it. Throws
  /// Error 78 on all ranks if the options do not fit ranks or model, or differ between ranks.
  Trainer(Task task, const TrainOptions& o, World& world, StepObserver observer = {});
  /// Takes a run that is resolved already.
  Trainer(ResolvedRun run, World& world, StepObserver observer = {});

  void on(Callbacks c, On where = On::first);

  /// Trains until `o.steps` are done or a signal asks to stop: then a checkpoint is saved first.
  /// Returns ok or stopped. Throws Error.
  Exit run();

  /// Takes one step and waits for its result; run() goes on from there. Metrics, validations and
  /// checkpoints are those of run().
  StepResult step();
  /// Returns the mean loss over all held-out targets; nothing if a rank was asked to stop
  /// meanwhile. Throws Error 77 if it is not finite.
  std::optional<double> validate();
  /// Returns the last validation's scores by name (Task::scores): means over all held-out targets.
  const std::map<std::string, double>& scores() const { return validation_.scores(); }
  /// Saves a checkpoint into the run directory, and returns when it is there.
  void save();

  /// Return the numbers of steps done, also in earlier processes, and of their samples.
  int64_t done() const { return done_; }
  int64_t consumed() const { return feed_.consumed(done_); }
  bool first() const { return world_.rank() == 0; }
  const TrainOptions& options() const { return options_; }
  const Step& update() const { return step_; }
  /// Lets `fill` write weights and optimizer state, as Step::restore; for parity.
  void restore(const std::function<void(const std::vector<Piece>&)>& fill) {
    step_.restore(fill, step_.state());
  }

 private:
  void open_metrics();
  Exit train();
  void take();
  std::vector<StepRecord> results(Step::Await await);
  std::vector<StepRecord> latest();
  void catch_up();
  void validate(StepRecord& record);
  void save_if_due();
  std::optional<double> held_out_loss();
  void report(StepRecord& record);
  std::string describe_start() const;
  void say_end() const;
  bool due(int64_t every) const { return every > 0 && done_ % every == 0; }
  bool ends() const { return stopping_ || done_ >= options_.steps; }
  Position position() const { return {done_, feed_.consumed(done_)}; }
  template <class Member, class... Args>
  void call(std::string_view name, Member member, const Args&... args) {
    if (name != "error" && callbacks_.read_weights(member)) step_.replica().data().await_weights();
    callbacks_.call(*this, done_, name, member, args...);
  }

  Task task_;
  World& world_;
  TrainOptions options_;
  Settings settings_;  // those of options_, and the task's
  Mesh mesh_;
  Feed feed_;
  Loader loader_;
  Step step_;
  Progress progress_;
  Saver saver_;
  Validation validation_;
  CallbackList callbacks_;
  std::optional<Metrics> metrics_;  // on rank 0
  int64_t done_ = 0;
  bool stopping_ = false;           // a rank was asked to stop
  std::optional<double> val_loss_;  // the last step's
  bool step_by_step_ = false;       // callbacks on all ranks see a step before the next is queued
  bool warned_ = false;             // about gradients, after a first step that was not skipped
  std::chrono::steady_clock::time_point last_step_ = std::chrono::steady_clock::now();
};

/// Returns a warning if a first step changes nothing, since all its gradients are 0; else an empty
/// text.
std::string warning_of(const StepResult& first, const StepOptions& o);

}  // namespace triax::parallel
