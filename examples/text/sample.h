#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "examples/text/tokenizer/tokenizer.h"
#include "triax/nn/key_value_cache.h"
#include "triax/parallel/program/program.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::text {

/// The rule by which the next token is drawn from a model's logits. In this order: the logits are
/// divided by the temperature, the `top_k` most likely tokens are kept, and of these the fewest
/// whose probabilities add up to `top_p` (Holtzman et al., "The curious case of neural text
/// degeneration", 2020).
struct Sampling {
  double temperature = 1;  ///< 0: always the most likely token
  int64_t top_k = 0;       ///< 0: all
  double top_p = 1;        ///< in (0, 1]
};

/// Returns the token that `uniform`, in (0, 1), draws: tokens in order of falling probability,
/// equal ones in their own, share the interval. Throws Error 77 if a logit is NaN.
size_t draw(const std::vector<double>& logits, const Sampling& how, double uniform);

/// The options of `sample`.
struct SampleOptions {
  std::string config, checkpoint;
  parallel::Weights weights = parallel::Weights::trained;
  std::string prompt = "\n";  ///< `-`: standard input
  int64_t tokens = 200, samples = 1;
  bool interactive = false;  ///< continue what is typed, line by line
  Sampling sampling = {};
  int64_t slide = 1;  ///< oldest tokens to drop when the context is full; 0: half of them
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

/// Returns the tokenizer it was trained with. Imported weights may lack one: their text is numbers.
Tokenizer tokenizer_of(const parallel::Checkpoint& checkpoint);

/// Returns the model of a checkpoint with its weights, to predict. `mesh` must outlive it;
/// `precision`: of weights and activations, none: the checkpoint's. Collective. Throws Error.
std::unique_ptr<parallel::Replica> load_model(parallel::Checkpoint& checkpoint,
                                              const TextModel& model, parallel::Mesh& mesh,
                                              parallel::Weights weights,
                                              std::optional<DType> precision);

/// Continues a prompt with a trained model, spread over the ranks of `world` as --pp and --tp say.
/// The first rank prints the text as it comes and, with --interactive, reads lines. Collective.
/// Throws Error.
void sample(const SampleOptions& o, const TextModelOf& model_of, parallel::World& world);

/// Returns the verb `sample` of a program, over options that outlive it.
parallel::Verb sample_verb(const std::string& program, SampleOptions& o, TextModelOf model_of);

/// Reads texts that grow token by token. The beginning that a text shares with the one before is
/// not computed again: its keys and values are cached.
class Decoder {
 public:
  /// `model` must outlive it. `context`: the tokens that it can see.
  Decoder(parallel::Replica& model, int64_t context) : model_(model), cache_(context) {}

  int64_t context() const { return cache_.capacity(); }
  /// Returns logits [1, vocabulary] of the token that follows `tokens`, 1 to `context` of them,
  /// alike on all ranks. Collective.
  Tensor logits(std::span<const int32_t> tokens);
  /// Returns the number of tokens that went through the model so far.
  int64_t computed() const { return computed_; }

 private:
  parallel::Replica& model_;
  nn::KeyValueCache cache_;
  std::vector<int32_t> read_;  // the tokens that are cached
  int64_t computed_ = 0;
};

/// A text, and the part of it that a model sees: all, until there are more tokens than its context.
/// Then the part begins `slide` tokens later.
class Window {
 public:
  /// Takes a slide of 1 to context. With 1 the model always sees as much as it can, and with each
  /// token all others move and are computed again. With more that happens once in `slide` tokens.
  Window(int64_t context, int64_t slide) : context_(context), slide_(slide) {}

  void append(std::span<const int32_t> tokens);
  std::span<const int32_t> seen() const { return std::span(tokens_).subspan(size_t(begin_)); }

 private:
  int64_t context_, slide_, begin_ = 0;
  std::vector<int32_t> tokens_;
};

}  // namespace triax::text
