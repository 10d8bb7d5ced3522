#pragma once
#include "core/error.h"
#include "examples/minigpt/config.h"

namespace triax::minigpt {

/// Train on the ranks that --comm says: the processes that mpirun or srun started (argc and argv
/// are main's), or threads of this one. Returns and throws as train().
Exit launch(const TrainConfig& config, int argc, char** argv);

}  // namespace triax::minigpt
