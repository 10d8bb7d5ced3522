#pragma once
#include "examples/minigpt/config.h"
#include "optim/adamw.h"

namespace triax::minigpt {

/// What the optimizer is told: rates of decay, and where its state is.
optim::AdamWOptions adam_options(const TrainConfig& c, double eps = 1e-8);

/// Throws Error 66 or 73 if --offload names a directory in which no files can be made.
void check_offload(const TrainConfig& c);

}  // namespace triax::minigpt
