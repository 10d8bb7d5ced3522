#pragma once
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "triax/parallel/pipeline/pipeline.h"
#include "triax/parallel/train/step/step.h"

// The output of a run: a line of metrics for each step, lines on the terminal, traces.
namespace triax::parallel {

/// The record of a step that is over: one line of metrics.jsonl (docs/runs.md).
struct StepRecord {
  StepResult result;
  double seconds = 0;  ///< since the step before ended, validations included
  std::optional<double> val_loss = {};
  std::map<std::string, double> scores = {};  ///< means of the same validation (Task::scores)
  std::string changed = {};                   ///< settings since the step before (resume_changed)
};

/// The file with one JSON object per step. Written by one rank.
class Metrics {
 public:
  /// `unit`: what a step's weight counts. `owner`: the run of a file that exists. Keeps the lines
  /// of steps up to `step`, the one that was resumed from (0: a fresh start). Throws Error 65,
  /// naming file and line, for a file that is none of metrics, 78 for one that is or may be another
  /// run's, 73 if it cannot be written.
  struct Place {
    std::string path, unit;
    /// recorded: this run's, which has written there before.
    enum class Owner { recorded, this_run, unknown } owner = Owner::unknown;
  };
  Metrics(const Place& place, int64_t step);
  void write(const StepRecord& record);
  /// True if the resumed run's last record has no validation loss; add_validation adds one.
  bool lacks_validation() const { return lacks_validation_; }
  /// Returns the number of steps, up to the resumed one, whose lines a recorded file lacks.
  int64_t missing() const { return missing_; }
  const std::string& last() const { return last_; }  ///< of the lines that were kept
  void put(const std::string& line);                 ///< another kind of line, with a `step`
  /// Adds a validation to the last record. The loss is finite.
  void add_validation(double loss, const std::map<std::string, double>& scores);

 private:
  void keep_until(int64_t step);
  Place place_;
  std::string last_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  bool lacks_validation_ = false;
  int64_t missing_ = 0;
};

/// The output of a run on the terminal. Silent on all ranks but the first.
class Progress {
 public:
  enum class Voice { loud, silent };
  /// Takes the `steps` of the whole run; `unit`: what a step's weight counts.
  Progress(Voice voice, int64_t steps, std::string unit);

  void say(const std::string& text) const;
  /// Prints a line as it is, however long: a shell would not take it back from several.
  void say_command(const std::string& line) const;
  /// Reports a step that is over: about a line every two seconds, and those nobody wants to miss.
  void step(const StepRecord& r);
  /// Reports `done` of `all` micro-batches of a validation: a line every five seconds.
  void validating(int64_t done, int64_t all);

 private:
  using Clock = std::chrono::steady_clock;
  bool speaks_;
  int64_t steps_;
  std::string unit_;
  int columns_;
  double mean_seconds_ = 0;
  // The first reported step, and when.
  std::optional<std::pair<int64_t, Clock::time_point>> first_;
  Clock::time_point last_line_;
};

/// Returns a number as JSON, which reads back exactly; null where it is not finite.
std::string exact(double x);
/// Returns text such as `val loss 0.1234  top1 0.9876`.
std::string describe(double val_loss, const std::map<std::string, double>& scores);

/// Returns text such as `42s`, `3m07s`, `2h15m`.
std::string duration(double seconds);

class Trainer;

/// Traces the steps of TrainOptions::profile: when they are over, or the run stops within them,
/// `trace.json` in the run directory holds what every rank did in them, as a Chrome trace, and a
/// table on the terminal how each spent its time. Throws Error 78 without a run directory and for
/// steps that are done already; later, on all ranks, 73 if the file cannot be written. Collective.
void profile_steps(Trainer& trainer);

/// Writes the metrics to an EventFile in the run directory; throws Error 78 if there is none.
/// `unit`: what a step's weight counts.
void write_tensorboard(Trainer& trainer, const std::string& unit);

/// Writes the certificate of the run into the run directory: every TrainOptions::certify steps a
/// line of hashes (docs/runs.md#certificates). A run that is resumed without one shortens the one
/// that is there. Throws Error 78 where there can be none. Collective.
void certify(Trainer& trainer);

/// Returns the calls of one rank of each pipeline stage to its groups since the start, per step
/// (validations included), and the peak of each kind of tensor memory. Collective over
/// `mesh.world()`; the text is whole on rank 0.
std::string describe_ledger(const Mesh& mesh, const Pipeline& pipeline, int64_t steps);

}  // namespace triax::parallel
