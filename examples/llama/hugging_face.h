#pragma once
#include "examples/hugging_face/conversion.h"
#include "examples/llama/llama.h"

/// Returns Llama (Touvron et al., 2023), as transformers' LlamaForCausalLM keeps it, in terms of
/// this Llama. `settings` are bound to `c`; both outlive it.
triax::hf::Architecture llama_of_hugging_face(LlamaConfig& c,
                                              const triax::parallel::Settings& settings);
