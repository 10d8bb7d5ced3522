#pragma once
#include "examples/hugging_face/conversion.h"
#include "examples/minigpt/config.h"

namespace triax::minigpt {

/// GPT-2 (Radford et al., 2019), as transformers' GPT2LMHeadModel keeps it, in terms of this GPT.
/// `c` outlives it.
hf::Architecture gpt2(Config& c);

}  // namespace triax::minigpt
