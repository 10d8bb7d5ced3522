#pragma once
#include "examples/minigpt/config.h"

namespace triax::minigpt {

/// Continue a prompt with a trained model and print the text as it comes. Throws Error.
void sample(const SampleConfig& config);

}  // namespace triax::minigpt
