#pragma once
#include "core/error.h"
#include "examples/minigpt/config.h"

namespace triax::minigpt {

/// The words of the command line, as main got them.
struct CommandLine {
  int& argc;
  char**& argv;
};

/// Train or sample on the ranks that --comm says: the processes that mpirun or srun started, or
/// threads of this one. Returns and throws as train() and sample().
Exit launch(const TrainConfig& config, CommandLine line);
Exit launch(const SampleConfig& config, CommandLine line);

}  // namespace triax::minigpt
