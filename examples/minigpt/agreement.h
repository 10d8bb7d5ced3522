#pragma once
#include <string>

#include "examples/minigpt/config.h"
#include "parallel/comm/together.h"

namespace triax::minigpt {

/// Resolve and validate `config` for all ranks, before anything else is sent. Collective. Throws
/// Error 78, or for a directory to offload to that will not do 66 or 73.
void settle(TrainConfig& config, parallel::Communicator& ranks);

/// Ranks that were told different things would train no model at all. Each brings all that it was
/// told, line by line. Collective. Throws Error 78 on every rank with the first line that differs.
void check_agreement(parallel::Communicator& ranks, const std::string& mine);

}  // namespace triax::minigpt
