#pragma once
#include "examples/minigpt/config.h"
#include "parallel/comm/launch/world.h"

namespace triax::minigpt {

/// Continues a prompt with a trained model, spread over the ranks of `world` as --pp and --tp say,
/// and prints the text as it comes, on the first. Collective. Throws Error.
void sample(const SampleConfig& config, parallel::World& world);

}  // namespace triax::minigpt
