#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/pipeline/simulate.h"

namespace triax::parallel::report {

/// What a pipeline did in a step. Seconds, from the begin of the first action.
struct MeasuredPipeline {
  int64_t step = 0;
  PipelineShape shape;
  /// Of replica 0, tensor-parallel rank 0; stage by stage. An action begins when it has what it
  /// receives.
  std::vector<TimedAction> actions;
  double time = 0;   ///< until the end of the last action
  double whole = 0;  ///< of the step, with what stages do before and after; without validation
};

/// How a rank spent the profiled steps, in seconds that add up to theirs.
struct RankTime {
  int rank = 0, dp = 0, pp = 0, tp = 0;
  double busy = 0, communicating = 0, waiting = 0;
};

/// What trace.json of `--profile` says.
struct Trace {
  int64_t first = 0, last = 0;  ///< the steps
  std::string schedule;         ///< its name; the run may have gone on with another
  Placement placement = Placement::ring;
  std::vector<RankTime> ranks;
  std::optional<MeasuredPipeline> pipeline;  ///< of the last step, if there are stages
};

/// Nothing if there is no such plain file. Reads it by lines, so that its size is no matter. Throws
/// Error 65, naming the line, if it is not as `--profile` writes it.
std::optional<Trace> read_trace(const std::string& path);

}  // namespace triax::parallel::report
