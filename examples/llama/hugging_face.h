#pragma once
#include "examples/hugging_face/conversion.h"
#include "examples/llama/llama.h"

/// Returns Llama (Touvron et al., 2023), Qwen 2 and 3, and the mixtures of experts Mixtral, OLMoE,
/// Qwen2-MoE and Qwen3-MoE, as transformers' classes keep them, in terms of this Llama. `settings`
/// are bound to `c`; both outlive it.
triax::hf::Architecture llama_of_hugging_face(LlamaConfig& c,
                                              const triax::parallel::Settings& settings);
