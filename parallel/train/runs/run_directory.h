#pragma once
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/checkpoint/background.h"
#include "parallel/settings/setting.h"
#include "parallel/train/model/task.h"
#include "parallel/train/options/options.h"
#include "parallel/train/step/step.h"

namespace triax::parallel {

/// Takes the operating system's lock (flock) on an open file, until it is closed or its process
/// ends. False if another job holds it. A file system without locks refuses nobody.
bool take_lock(int descriptor);

/// Who may write to a run directory: one running job at a time. The lock is the operating system's
/// (flock), so that a job that was killed holds none. Its file says who holds it.
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
class UnlessUsed {
 public:
  explicit UnlessUsed(std::string path) : path_(std::move(path)) {}
  UnlessUsed(const UnlessUsed&) = delete;
  UnlessUsed& operator=(const UnlessUsed&) = delete;
  ~UnlessUsed();

 private:
  std::string path_;
};

/// How far training is.
struct Position {
  int64_t step = 0;     ///< steps done
  int64_t samples = 0;  ///< consumed by them, over all replicas
};

/// The files of one run: configuration, attachments and checkpoints `step-N`. One job at a time may
/// write to it.
class RunDirectory {
 public:
  /// What the run is made of; `settings` are all of it, resolved. All must outlive the directory.
  struct Contents {
    const Task& task;
    const TrainOptions& options;
    const Settings& settings;
  };
  /// Touches nothing yet. Collective.
  RunDirectory(const Contents& contents, Communicator& host);

  const std::string& path() const { return checkpoints_.path(); }
  /// Collective. Loads what `resume` says into `step`, then makes the directory, unless its name is
  /// empty: then a checkpoint is only read. Returns where the checkpoint was saved, nothing but
  /// zeros if training starts afresh. With `resume_changed`, settings may differ that are
  /// OnResume::ask: weights of another precision are made from what is stored most exactly, the
  /// fp32 masters where there are some, and the loss scale begins afresh. Throws the same Error on
  /// every rank: 78 if the checkpoint is of another model or data, if the directory holds a later
  /// one, if another job holds the directory, or if the metrics are to go to one of its own files;
  /// 73 if it cannot be written. A run that is refused changes nothing.
  Position open(Step& step);
  /// Collective, after open(), once nothing can refuse the run any more: config.toml, the
  /// attachments, where the metrics are, and all settings with what is known of the model, which
  /// has so many `parameters`. `first_step`: that this start of the run trains.
  void write_configuration(const std::string& metrics, int64_t parameters, int64_t first_step);
  /// Settings that the checkpoint was made with another value of, a line each; after open(). On
  /// rank 0 also a new file of metrics.
  const std::vector<std::string>& changes() const { return changes_; }
  /// Steps of newer checkpoints that last-good has left out; on rank 0.
  const std::vector<int64_t>& damaged() const { return damaged_; }
  /// Those of them that `resume_changed` has allowed.
  const std::vector<std::string>& allowed() const { return allowed_; }
  /// Did the last run in this directory write its metrics to this file?
  bool wrote(const std::string& metrics) const;
  /// Collective. Saves a checkpoint, with the validation loss of this step if there is one; with
  /// `save_async`, it is on the disk only after end_save(). One at a time.
  void begin_save(const Position& at, const Step& step, std::optional<double> val_loss);
  /// Collective. If a save was begun, ends it: then drops all but the newest `keep` and, with
  /// `keep_best`, the best. Returns the step it is of; nothing if there is none to end, or if it
  /// shall not `wait` and some rank still writes. Throws what saving throws.
  enum class Wait { no, yes };
  std::optional<int64_t> end_save(Wait wait);
  /// Collective. The lowest validation loss of all checkpoints, and the step it is of.
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
  std::optional<int64_t> saving_;  // step of the save that was begun
  std::unique_ptr<BackgroundSave> background_;
};

/// Writes a file of a directory that has one owner anew; who reads it meanwhile, or after a crash,
/// sees the old one or the new one.
void replace_file(const std::string& path, const std::string& text, const Files& files = disk());

/// The settings of the run that saved a checkpoint, and what identified its data: literals by name.
/// Throws Error 65.
std::map<std::string, std::string> saved_settings(const Checkpoint& checkpoint);
/// The same of a checkpoint's state; empty if it has none.
std::map<std::string, std::string> saved_settings(const CheckpointState& state);
/// What they are read from: the text `settings` of a checkpoint's state.
std::string settings_text(const std::map<std::string, std::string>& literals);
/// Text of a run directory's settings.txt. Throws Error 65 if its end is missing.
std::string whole_settings(const std::string& path);
/// Gives settings the values that they had in that run; what it did not know yet stays as it is.
/// Throws Error 65 for one that is not allowed: the file is not to be trusted.
void restore(const Settings& settings, const Checkpoint& checkpoint);
/// The same of the state of the checkpoint at `path`.
void restore(const Settings& settings, const std::string& path, const CheckpointState& state);

}  // namespace triax::parallel
