#pragma once
#include <cstdint>
#include <string>

#include "examples/text/text_data.h"
#include "parallel/program/program.h"
#include "parallel/train/replica.h"

namespace triax::minigpt {

/// The shape of the transformer.
struct ModelConfig {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  int64_t context = 64;  ///< tokens
  double dropout = 0;
  int64_t vocab = 0;  ///< 0: as many as the tokenizer has
};
/// Throws Error 78 for sizes that no GPT can have.
void check_model(const ModelConfig& c);

/// What minigpt adds to parallel::TrainOptions.
struct Config {
  ModelConfig model;
  text::TextOptions text;
};
parallel::Settings settings(Config& c);
/// The GPT and its text. Throws Error.
parallel::Task task(const Config& c);

/// What `minigpt sample` can be told.
struct SampleConfig {
  std::string config;
  std::string checkpoint;
  parallel::Weights weights = parallel::Weights::trained;
  std::string prompt = "\n";
  int64_t tokens = 200;
  double temperature = 1;  ///< 0: always the most likely token
  int64_t top_k = 0;       ///< 0: all
  int64_t seed = 1;
  int pp = 1, tp = 1;
  parallel::LaunchOptions launch = {};
};
parallel::Verb sample_verb(SampleConfig& c);

/// All of minigpt, over configurations that outlive it.
parallel::ProgramOptions program_options(Config& c, SampleConfig& sample);

}  // namespace triax::minigpt
