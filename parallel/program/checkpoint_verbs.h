#pragma once
#include <string>

#include "parallel/settings/command_line.h"

namespace triax::parallel {

/// The verbs that look at a checkpoint: `RUN/step-N`, or a run directory, whose newest checkpoint
/// is taken. They store what they are told in `path`.
Verb checkpoint_inspect_verb(std::string& path);
Verb checkpoint_verify_verb(std::string& path);

/// Prints what the manifest says: step, mesh, tensors, settings. Both throw Error 66 or 65 for what
/// is no checkpoint.
Exit inspect_checkpoint(const std::string& path);
/// Reads all of it. Throws Error 65 naming the file and the tensor that is damaged.
Exit verify_checkpoint(const std::string& path);

}  // namespace triax::parallel
