#pragma once
#include "core/error.h"
#include "examples/minigpt/config.h"

namespace triax::minigpt {

/// Train on the ranks that --comm says: those of mpirun, or threads of this process.
Exit launch(const TrainConfig& config);

}  // namespace triax::minigpt
