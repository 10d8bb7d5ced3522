#pragma once
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "triax/parallel/checkpoint/background.h"
#include "triax/parallel/settings/setting.h"
#include "triax/parallel/train/model/task.h"
#include "triax/parallel/train/options/options.h"
#include "triax/parallel/train/step/step.h"

namespace triax::parallel {

/// Takes the operating system's lock (flock) on an open file, until it is closed or its process
/// ends. False if another job holds it. A file system without locks refuses nobody.
bool take_lock(int descriptor);

/// The right to write to a run directory: one running job at a time. The lock is the operating
/// system's (flock), so that a job that was killed holds none. Its file says who holds it.
class RunLock {
 public:
  /// Throws Error 78, with who holds it, if another job does; 73 if the file cannot be written.
  explicit RunLock(const std::string& directory);

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

/// Makes a directory for a run of `program` that has no name, `runs/<date>-<program>`, which no
/// other has: with a number behind it where another run began in the same second. Returns its path.
std::string make_run_directory(const std::string& program);
/// Removes a run directory at the end if nothing but the lock is in it.
class UnlessUsed : Immovable {
 public:
  explicit UnlessUsed(std::string path) : path_(std::move(path)) {}
  ~UnlessUsed();

 private:
  std::string path_;
};

/// The progress of training.
struct Position {
  int64_t step = 0;     ///< steps that are done
  int64_t samples = 0;  ///< samples consumed by them, over all replicas
};

/// The files of one run: configuration, attachments and checkpoints `step-N`. One job at a time may
/// write to it.
class RunDirectory {
 public:
  /// The parts of the run; `settings` are all of it, resolved. All must outlive the directory.
  struct Contents {
    const Task& task;
    const TrainOptions& options;
    const Settings& settings;
  };
  /// Touches no file yet. Collective.
  RunDirectory(const Contents& contents, Communicator& host);

  const std::string& path() const { return checkpoints_.path(); }
  /// Collective. Loads the checkpoint of `resume` into `step`, then makes the directory, unless its
  /// name is empty: then a checkpoint is only read. Returns the position of the checkpoint; zeros
  /// if training starts afresh. With `resume_changed`, settings may differ that are OnResume::ask:
  /// weights of another precision are made from what is stored most exactly, the fp32 masters where
  /// there are some, and the loss scale begins afresh. Throws the same Error on every rank: 78 if
  /// the checkpoint is of another model or data, if the directory holds a later one or another of
  /// that step, if another job holds the directory, or if the metrics are to go to one of its own
  /// files; 73 if it cannot be written. A run that is refused changes nothing.
  Position open(Step& step);
  /// Collective, after open(), once nothing can refuse the run any more. Writes config.toml, the
  /// attachments, where the metrics are, and all settings with facts of the model, which has so
  /// many `parameters`. `first_step`: the first that this start of the run trains.
  void write_configuration(const std::string& metrics, int64_t parameters, int64_t first_step);
  /// Returns, after open(), settings that the checkpoint was made with another value of, a line
  /// each; on rank 0 also a new file of metrics.
  const std::vector<std::string>& changes() const { return changes_; }
  /// Returns the steps of newer checkpoints that last-good has left out; on rank 0.
  const std::vector<int64_t>& damaged() const { return damaged_; }
  /// Returns those of changes() that `resume_changed` has allowed.
  const std::vector<std::string>& allowed() const { return allowed_; }
  /// True if the last run in this directory wrote its metrics to this file.
  bool wrote(const std::string& metrics) const;
  /// Collective. Saves a checkpoint, with the validation loss of this step if there is one; with
  /// `save_async`, it is on the disk only after end_save(). One at a time.
  void begin_save(const Position& at, const Step& step, std::optional<double> val_loss);
  /// Collective. Ends a save that was begun, then drops all but the newest `keep` and, with
  /// `keep_best`, the best. Returns its step; nothing if none was begun, or if it does not `wait`
  /// and a rank still writes. Throws what saving throws.
  enum class Wait { no, yes };
  std::optional<int64_t> end_save(Wait wait);
  /// Collective. Adds the loss of a validation after `step` to the checkpoint of that step, all
  /// else of which stays. False if this run has neither saved it here nor been resumed from it.
  bool add_validation(int64_t step, double val_loss);
  /// Collective. Returns the step and value of the lowest validation loss of all checkpoints.
  std::optional<std::pair<int64_t, double>> best() { return checkpoints_.lowest("val_loss"); }

 private:
  void lock();
  void refuse_own_files() const;
  void refuse_newer_than(int64_t step) const;
  std::string metrics_before() const;
  void compare_metrics();
  Position resume(Step& step);
  void refuse_others() const;
  void check_same_run(const Checkpoint& checkpoint);
  void check_same_data(const Checkpoint& checkpoint) const;

  Contents contents_;
  Communicator& ranks_;
  CheckpointDirectory checkpoints_;
  std::unique_ptr<RunLock> lock_;  // on rank 0
  std::vector<std::string> changes_, allowed_;
  std::vector<int64_t> damaged_;
  std::optional<int64_t> saving_, held_;  // steps: the save begun; the checkpoint of this training
  std::unique_ptr<BackgroundSave> background_;
};

/// Replaces a file of a directory that has one owner; a reader meanwhile, or after a crash, sees
/// the old one or the new one.
void replace_file(const std::string& path, const std::string& text, const Files& files = disk());

/// Returns the settings of the run that saved a checkpoint, and what identified its data: literals
/// by name. Throws Error 65.
std::map<std::string, std::string> saved_settings(const Checkpoint& checkpoint);
/// Returns those of a checkpoint's state; empty if it has none.
std::map<std::string, std::string> saved_settings(const CheckpointState& state);
/// Returns the text `settings` of a checkpoint's state, which they are read from.
std::string settings_text(const std::map<std::string, std::string>& literals);
/// Returns the text of a run directory's settings.txt. Throws Error 65 if its end is missing.
std::string whole_settings(const std::string& path);
/// Gives settings the values that they had in that run; settings that it lacks stay as they are.
/// Throws Error 65 for one that is not allowed: the file is not to be trusted.
void restore(const Settings& settings, const Checkpoint& checkpoint);
/// Restores them from the state of the checkpoint at `path`.
void restore(const Settings& settings, const std::string& path, const CheckpointState& state);

}  // namespace triax::parallel
