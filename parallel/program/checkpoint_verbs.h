#pragma once
#include <string>

#include "parallel/settings/command_line.h"

namespace triax::parallel {

/// What the verbs that look at checkpoints are told: `RUN/step-N`, or a run directory, whose newest
/// checkpoint is taken.
struct CheckpointPaths {
  std::string a, b;
};
Verb checkpoint_inspect_verb(CheckpointPaths& paths);
Verb checkpoint_verify_verb(CheckpointPaths& paths);
Verb checkpoint_diff_verb(CheckpointPaths& paths);

/// Prints what the manifest of `a` says: step, mesh, tensors, settings. All three throw Error 66 or
/// 65 for what is no checkpoint.
Exit inspect_checkpoint(const CheckpointPaths& paths);
/// Reads all of `a`. Throws Error 65 naming the file and the tensor that is damaged.
Exit verify_checkpoint(const CheckpointPaths& paths);
/// Verifies `a` and `b` and compares them, one tensor at a time. Returns ok or differs.
Exit compare_checkpoints(const CheckpointPaths& paths);

}  // namespace triax::parallel
