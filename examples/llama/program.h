#pragma once
#include "examples/hugging_face/conversion.h"
#include "examples/llama/config.h"
#include "examples/text/make_shards.h"

/// The options of triax-llama, with triax::parallel::TrainOptions.
struct LlamaOptions {
  LlamaConfig model = {};
  triax::text::TextOptions text = {};
  triax::text::SampleOptions sample = {.slide = 0};
  triax::text::DataOptions data = {};  ///< the options of the verb `data`
};

/// Returns all of triax-llama, over options that outlive it.
triax::parallel::ProgramOptions program_options(LlamaOptions& o);

/// Returns Llama (Touvron et al., 2023), Qwen 2 and 3, and the mixtures of experts Mixtral, OLMoE,
/// Qwen2-MoE and Qwen3-MoE, as transformers' classes keep them, in terms of this Llama. `settings`
/// are bound to `c`; both outlive it.
triax::hf::Architecture llama_of_hugging_face(LlamaConfig& c,
                                              const triax::parallel::Settings& settings);
