#pragma once
#include <cstdint>

#include "examples/text/make_shards.h"
#include "examples/text/sample.h"
#include "examples/text/text_data.h"
#include "triax/parallel/tensor/lora.h"

namespace triax::minigpt {

/// The shape of the transformer.
struct ModelConfig {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t context = 64;  ///< tokens
  double dropout = 0;
  int64_t vocab = 0;                ///< 0: as many as the tokenizer has
  parallel::LoraOptions lora = {};  ///< beside all four projections
};
/// Throws Error 78 for sizes that no GPT can have.
void check_model(const ModelConfig& c);

/// The options of minigpt, with parallel::TrainOptions.
struct Config {
  ModelConfig model;
  text::TextOptions text;
  text::DataOptions data;  ///< the options of the verb `data`
};
parallel::Settings model_settings(ModelConfig& m);
parallel::Settings settings(Config& c);
/// Returns the task: the GPT and its text. Throws Error.
parallel::Task task(const Config& c);

/// Returns the GPT that a run has saved. Throws Error 65.
text::TextModel model_of(const parallel::Checkpoint& checkpoint, const text::Tokenizer& tokenizer);

/// Returns all of minigpt, over configurations that outlive it.
parallel::ProgramOptions program_options(Config& c, text::SampleOptions& sample);

}  // namespace triax::minigpt
