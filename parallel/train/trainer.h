#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/comm/launch/world.h"
#include "parallel/comm/together.h"
#include "parallel/train/feed.h"
#include "parallel/train/report.h"
#include "parallel/train/run_directory.h"
#include "parallel/train/task.h"

namespace triax::parallel {

class Trainer;

/// A run that every rank agrees on.
struct Settled {
  Task task;
  TrainOptions options;  ///< resolved
  Facts facts;           ///< of the model
};
/// Resolves the options for the ranks of `world` and checks that ranks agree about them and the
/// data, and that the task's model can be trained with them. Collective. Throws Error 78 on all
/// ranks, 65 for a task without samples.
Settled settle(Task task, const TrainOptions& o, World& world);

/// Called at the usual places of a run. Any may be empty. None may step or run. On all ranks start,
/// step and end may save and validate, and validation may save.
struct Callbacks {
  std::function<void(Trainer&)> start = {}, end = {};
  std::function<void(Trainer&, const StepRecord&)> step = {};
  std::function<void(Trainer&, double loss)> validation = {};
  /// Of what is on the disk now: with `save_async`, of an earlier step.
  std::function<void(Trainer&, const std::string& path)> checkpoint = {};
  std::function<void(Trainer&, const std::exception&)> error = {};
};
/// On which ranks: what communicates has to be called on all.
enum class On { all, first };

/// Trains a task on this rank's share of a mesh: data, steps, validation, metrics, progress,
/// checkpoints, resume and signals. Everything is collective.
///
///   World world(argc, argv);
///   StopSignal stop;  // without it a signal kills
///   Trainer trainer(task, options, world);
///   return int(trainer.run());
class Trainer {
 public:
  /// Resumes if `o.resume` says so; without `o.out`, only reads. `world` must outlive it. Throws
  /// Error 78 on all ranks if the options do not fit ranks or model, or differ between ranks.
  Trainer(Task task, const TrainOptions& o, World& world, StepObserver observer = {});
  /// The same for a run that is settled already.
  Trainer(Settled run, World& world, StepObserver observer = {});
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void on(Callbacks c, On where = On::first);

  /// Until `o.steps` are done or a signal asks to stop: then a checkpoint is saved first. Returns
  /// ok or stopped. Throws Error.
  Exit run();

  /// One step, its result waited for; run() goes on from there. Metrics, validations and
  /// checkpoints are those of run().
  StepResult step();
  /// Mean loss over all held-out targets; nothing if a rank was asked to stop meanwhile. Throws
  /// Error 77 if it is not finite.
  std::optional<double> validate();
  /// Of the last validation, by name (Task::scores): means over all held-out targets.
  const std::map<std::string, double>& scores() const { return scores_; }
  /// Saves a checkpoint into the run directory, and returns when it is there.
  void save();

  /// Steps done since the start of training, in this process or before; samples that they consumed.
  int64_t done() const { return done_; }
  int64_t consumed() const { return feed_.consumed(done_); }
  bool first() const { return world_.rank() == 0; }
  const TrainOptions& options() const { return options_; }
  const Step& update() const { return step_; }
  /// For parity: `fill` writes weights and optimizer state, as Step::restore.
  void restore(const std::function<void(const std::vector<Piece>&)>& fill) {
    step_.restore(fill, step_.state());
  }

 private:
  void open_metrics();
  Exit train();
  void take();
  void check_held_out();
  static void check_finite(std::optional<double> val_loss, int64_t step);
  std::optional<double> held_out_loss();
  std::optional<double> pass_over_held_out();
  bool lacks_validation();
  bool reaches_best();
  std::optional<double> make_up_validation();
  void report(StepRecord& record);
  std::string describe_start() const;
  std::string resuming() const;
  std::string way_on() const;
  std::string warning_of(const StepResult& first) const;
  void say_end(bool stopped) const;
  bool due(int64_t every) const { return every > 0 && done_ % every == 0; }
  void begin_save();
  void compare_replicas();
  void save_rest();
  void end_save(RunDirectory::Wait wait);
  void set_farewell(int64_t step);
  std::vector<StepRecord> results(Step::Upto upto);
  Feed::Place place() const;
  struct Running {  // a callback
    std::string_view name;
    On where;
  };
  void check_call(const char* what, const std::vector<std::string>& allowed) const;
  template <class Member, class... Args>
  void call(std::string_view name, Member member, const Args&... args) {
    for (auto& c : callbacks_) {
      Inside inside(inside_, {name, c.where});
      try {
        if (c.calls.*member) (c.calls.*member)(*this, args...);
      } catch (...) {
        rethrow_from("callback after step " + std::to_string(done_));
      }
    }
  }
  /// Says which callback runs, while it does.
  struct Inside {
    Inside(std::optional<Running>& now, const Running& callback)
        : now_(now), before_(std::exchange(now, callback)) {}
    ~Inside() { now_ = before_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    std::optional<Running>& now_;
    std::optional<Running> before_;
  };

  Task task_;
  World& world_;
  TrainOptions options_;
  Settings settings_;  // of options_, and the task's
  Mesh mesh_;
  Feed feed_;
  Loader loader_;
  Step step_;
  Progress progress_;
  std::optional<RunDirectory> directory_;
  std::optional<Metrics> metrics_;  // on rank 0
  bool held_out_checked_ = false;
  std::map<std::string, double> scores_;
  struct Registered {
    Callbacks calls;
    On where;
  };
  std::vector<Registered> callbacks_;
  std::optional<Running> inside_;
  bool step_by_step_ = false;  // callbacks on all ranks see a step before the next is queued
  int64_t done_ = 0;
  int64_t begun_ = 0, saved_ = 0;  // done when this process began, and in the newest checkpoint
  std::optional<int64_t> newest_ = {};  // checkpoint that is whole
  bool warned_ = false;                 // of gradients, after a first step that was not skipped
  int64_t compared_ = -1;               // done when replicas were compared last
  std::optional<double> val_loss_;      // of the last step
  std::optional<std::pair<int64_t, double>> best_;  // step and validation loss, with keep_best
  std::chrono::steady_clock::time_point last_step_ = std::chrono::steady_clock::now();
};

}  // namespace triax::parallel
