#pragma once
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
