#pragma once
#include <functional>
#include <optional>
#include <string>

#include "examples/text/sampling.h"
#include "examples/text/tokenizer/tokenizer.h"
#include "parallel/program/program.h"
#include "parallel/train/step/replica.h"

namespace triax::text {

/// The options of `sample`.
struct SampleOptions {
  std::string config, checkpoint;
  parallel::Weights weights = parallel::Weights::trained;
  std::string prompt = "\n";  ///< `-`: standard input
  int64_t tokens = 200, samples = 1;
  bool interactive = false;  ///< continue what is typed, line by line
  Sampling sampling = {};
  int64_t slide = 1;  ///< tokens that leave a full context together; 0: half of it
  int64_t seed = 1;
  std::optional<DType> precision = {};  ///< none: the checkpoint's
  int pp = 1, tp = 1;
  parallel::LaunchOptions launch = {};
};

/// The model of a checkpoint, as its program builds it.
struct TextModel {
  parallel::Build build;
  int64_t context = 1;  ///< tokens
};
using TextModelOf = std::function<TextModel(const parallel::Checkpoint&, const Tokenizer&)>;
/// Throws Error 65 unless the checkpoint has a tensor of this name and shape. Its settings may ask
/// for a model of any size, which is built only if its tensors have that size.
void check_stored(const parallel::Checkpoint& checkpoint, const std::string& tensor,
                  const Shape& shape);

/// Continues a prompt with a trained model, spread over the ranks of `world` as --pp and --tp say.
/// The first rank prints the text as it comes and, with --interactive, reads lines. Collective.
/// Throws Error.
void sample(const SampleOptions& o, const TextModelOf& model_of, parallel::World& world);

/// Returns the verb `sample` of a program, over options that outlive it.
parallel::Verb sample_verb(const std::string& program, SampleOptions& o, TextModelOf model_of);

}  // namespace triax::text
