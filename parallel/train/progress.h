#pragma once
#include <chrono>
#include <string>

#include "parallel/pipeline/pipeline.h"
#include "parallel/train/metrics.h"

namespace triax::parallel {

/// What a user sees of a run on the terminal. Silent on all ranks but the first.
class Progress {
 public:
  enum class Voice { loud, silent };
  /// `steps` of the whole run; `unit`: what a step's weight counts.
  Progress(Voice voice, int64_t steps, std::string unit);

  void say(const std::string& text) const;
  /// A step is over. About a line every two seconds, and those nobody wants to miss.
  void step(const StepRecord& r);
  /// A validation has done `done` of `all` micro-batches: a line every five seconds.
  void validating(int64_t done, int64_t all);

 private:
  using Clock = std::chrono::steady_clock;
  bool speaks_;
  int64_t steps_;
  std::string unit_;
  int columns_;
  double mean_seconds_ = 0;
  Clock::time_point last_line_;
};

/// `42s`, `3m07s`, `2h15m`.
std::string duration(double seconds);

/// What one rank of each pipeline stage asked of its groups since the start, per step (validations
/// included), and the peak of each kind of tensor memory. Collective over `mesh.world()`; the text
/// is whole on rank 0.
std::string describe_ledger(const Mesh& mesh, const Pipeline& pipeline, int64_t steps);

}  // namespace triax::parallel
