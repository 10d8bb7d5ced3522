#pragma once
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "parallel/train/step.h"

namespace triax::parallel {

/// What is known of a step once it is over: one line of metrics.jsonl (docs/runs.md).
struct StepRecord {
  StepResult result;
  double seconds = 0;  ///< since the step before it was over; a validation counts in
  std::optional<double> val_loss = {};
};

/// The file with one JSON object per step. Written by one rank.
class Metrics {
 public:
  /// `unit`: what a step's weight counts. `owned`: the file lies in this run's own directory. Keeps
  /// the lines of steps up to `step`, the one that was resumed from (0: a fresh start). Throws
  /// Error 65, naming file and line, for a file that is none of metrics, 78 for a file of another
  /// run, 73 if it cannot be written.
  struct Place {
    std::string path, unit;
    enum class Owner { this_run, unknown } owner = Owner::unknown;
  };
  Metrics(const Place& place, int64_t step);
  void write(const StepRecord& record);

 private:
  void keep_until(int64_t step) const;
  Place place_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace triax::parallel
