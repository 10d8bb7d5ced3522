#pragma once
#include "examples/minigpt/config.h"
#include "parallel/comm/communicator.h"

namespace triax::minigpt {

/// Continue a prompt with a trained model, spread over the ranks of `world` as --pp and --tp say,
/// and print the text as it comes, on the first. Collective. Throws Error.
void sample(SampleConfig config, parallel::Communicator& world, parallel::Communicator& host);
/// The same on one rank.
void sample(const SampleConfig& config);

}  // namespace triax::minigpt
