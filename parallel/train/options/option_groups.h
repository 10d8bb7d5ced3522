#pragma once
#include "triax/parallel/train/options/options.h"

namespace triax::parallel {

// The options by group, a file each: settings (options.h), what follows from others, checks. A new
// option is a field of options.h, a line and perhaps a check in the file of its group, and its use.

void resolve_mesh(StepOptions& o, int64_t ranks);
/// Fills in batch and rates. The mesh is resolved.
void resolve_optimizer(TrainOptions& o);

// Throw Error 78 as check_options() says.
void check_run(const TrainOptions& o);
void check_mesh(const TrainOptions& o);
void check_bitwise(const TrainOptions& o);
void check_optimizer(const TrainOptions& o);
void check_memory(const TrainOptions& o);
void check_checkpoints(const TrainOptions& o);

/// Returns the value of `--offload`.
const char* name_of(Offloaded what);

}  // namespace triax::parallel
