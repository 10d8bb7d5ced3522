#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "parallel/program/program.h"

namespace triax::parallel {

/// The options of `replay`.
struct ReplayOptions {
  std::string checkpoint;  ///< `RUN/step-N`, or a run directory
  int64_t step = 0;        ///< 0: the one after the checkpoint
  int rank = 0;
  std::string tensor, out, compare;
};

/// Gives `o` and the program's settings the values that the run had in that step, as its directory
/// and its checkpoints say, and lets it resume the checkpoint before the step. Fills in `what`: the
/// path of that checkpoint, and the step. Returns the state of the checkpoint if the run began with
/// --init. Throws Error 78, 66 or 65.
std::optional<CheckpointState> take_settings(ReplayOptions& what, TrainOptions& o,
                                             const Settings& of_program);

}  // namespace triax::parallel
