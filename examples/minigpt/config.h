#pragma once
#include <cstdint>

#include "examples/hugging_face/conversion.h"
#include "examples/text/make_shards.h"
#include "examples/text/sample.h"
#include "examples/text/text_data.h"

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

/// Returns GPT-2 (Radford et al., 2019), as transformers' GPT2LMHeadModel keeps it, in terms of
/// this GPT. `c` outlives it.
hf::Architecture gpt2(Config& c);

/// Opens a GPT-2 checkpoint of llm.c (github.com/karpathy/llm.c, train_gpt2.py, write_model), such
/// as gpt2_124M.bin, as if transformers had saved it: versions 3 (fp32) and 5 (bf16), whose table
/// of tokens has padding rows, which are left out. Throws Error 65, 66 or 74.
hf::Source open_llm_c(const std::string& path, const Files& files);

/// Returns all of minigpt, over configurations that outlive it.
parallel::ProgramOptions program_options(Config& c, text::SampleOptions& sample);

}  // namespace triax::minigpt
