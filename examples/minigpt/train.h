#pragma once
#include "examples/minigpt/config.h"
#include "parallel/comm/communicator.h"

namespace triax::minigpt {

/// Train one rank's share of a GPT on text. Collective. `world` carries tensors, `host` what ranks
/// tell each other beside them. Returns ok, or stopped after a signal (checkpoint saved). Throws
/// Error.
Exit train(TrainConfig config, parallel::Communicator& world, parallel::Communicator& host);

}  // namespace triax::minigpt
