#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "examples/minigpt/tokenizer.h"
#include "nn/layer.h"

namespace triax::minigpt {

/// A text file, as UTF-8 bytes. Throws Error 66 if it is not there, 65 if it is a directory, empty
/// or larger than 2 GiB.
std::string read_text(const std::string& path);

/// Rows of the embedding: `asked` (--vocab), or the tokenizer's size if that is 0. More rows than
/// tokens are allowed, fewer are Error 78.
int64_t vocabulary(int64_t asked, const Tokenizer& tokenizer);

/// How a text is cut.
struct Split {
  int64_t context = 1;      ///< tokens in a window, >= 1
  double val_fraction = 0;  ///< of the text, its last part, held out; in [0, 1)
  std::string name = {};    ///< begins messages: the path
};

/// An encoded text: the first part to train on, the last part held out.
class TextData {
 public:
  /// Throws Error 65 if the text is not UTF-8, has a character that `tokenizer` lacks, or is too
  /// short for a window in each part.
  TextData(std::string_view text, const Tokenizer& tokenizer, const Split& split);

  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t train_tokens() const { return train_tokens_; }
  int64_t context() const { return context_; }

  /// Training windows: sample i is context + 1 tokens from token i on, so one epoch begins once at
  /// every position.
  int64_t samples() const { return train_tokens_ - context_; }
  /// The windows of `samples`, in that order, on the cpu. Throws Error 70 for an index outside
  /// [0, samples()).
  nn::Batch batch(std::span<const int64_t> samples) const;

  /// Targets in the held-out part: all its tokens but the first. 0 if nothing is held out.
  int64_t val_tokens() const;
  /// Windows that cover them without overlap; the last may be ragged.
  int64_t val_windows() const;
  /// Windows [first, first + count) of the held-out part. Places behind its end have target -1, and
  /// windows behind the last have nothing else, so that all ranks can run equally many.
  nn::Batch val_batch(int64_t first, int64_t count) const;

  /// 8 hexadecimal digits, crc32c: equal for the same tokens to train on.
  std::string hash() const;
  /// Entropy, in nats per token, of the token frequencies of the whole text: the loss of the best
  /// model that looks at no context.
  double unigram_entropy() const;

 private:
  std::vector<int32_t> tokens_;
  int64_t train_tokens_ = 0;
  int64_t context_ = 1;
};

}  // namespace triax::minigpt
