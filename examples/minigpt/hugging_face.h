#pragma once
#include "examples/hugging_face/conversion.h"
#include "examples/minigpt/config.h"

namespace triax::minigpt {

/// Returns GPT-2 (Radford et al., 2019), as transformers' GPT2LMHeadModel keeps it, in terms of
/// this GPT. `c` outlives it.
hf::Architecture gpt2(Config& c);

/// Opens a GPT-2 checkpoint of llm.c (github.com/karpathy/llm.c, train_gpt2.py, write_model), such
/// as gpt2_124M.bin, as if transformers had saved it: versions 3 (fp32) and 5 (bf16), whose table
/// of tokens has padding rows, which are left out. Throws Error 65, 66 or 74.
hf::Source open_llm_c(const std::string& path, const Files& files);

}  // namespace triax::minigpt
