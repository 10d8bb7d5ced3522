#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::parallel {

/// Loads the checkpoint that a run resumes, saves its own, and says how the run goes on.
class Saver {
 public:
  /// Is called when a checkpoint is on the disk: with `save_async`, that of an earlier step.
  using OnDisk = std::function<void(const std::string& path)>;
  /// `world`, `step` and what `run` refers to must outlive it.
  Saver(const RunDirectory::Contents& run, World& world, Step& step, OnDisk on_disk);

  /// Calls RunDirectory::open. Without TrainOptions::out, a checkpoint is only read.
  Position open();
  /// Saves, where there is a directory; end() puts the checkpoint on the disk. Collective.
  void begin(const Position& at, std::optional<double> val_loss);
  void end(RunDirectory::Wait wait);
  /// Collective. Calls RunDirectory::add_validation if the loss is finite; else returns false.
  bool add_validation(int64_t done, double val_loss);
  /// Compares replicas once after a step, with TrainOptions::check_replicas, so that no checkpoint
  /// hides a difference. Collective.
  void compare_replicas(int64_t done);
  /// True if the validation after `done` steps is the best so far, which is remembered.
  bool reaches_best(int64_t done, std::optional<double> val_loss);

  RunDirectory* directory() { return directory_ ? &*directory_ : nullptr; }
  const RunDirectory* directory() const { return directory_ ? &*directory_ : nullptr; }
  /// Return the number of steps done when this process began, and in the newest checkpoint.
  int64_t begun() const { return begun_; }
  int64_t saved() const { return saved_; }
  /// Returns the step and the loss of the best validation, with TrainOptions::keep_best.
  const std::optional<std::pair<int64_t, double>>& best() const { return best_; }
  /// Returns the command that continues the run; its flags alone without Task::command.
  std::string resuming() const;

 private:
  std::string how_to_resume() const;
  void set_farewell(int64_t step);

  RunDirectory::Contents run_;
  World& world_;
  Step& step_;
  OnDisk on_disk_;
  std::optional<RunDirectory> directory_;
  int64_t begun_ = 0, saved_ = 0;
  std::optional<int64_t> newest_;  // checkpoint that is whole
  int64_t compared_ = -1;          // done when replicas were compared last
  std::optional<std::pair<int64_t, double>> best_;
};

}  // namespace triax::parallel
