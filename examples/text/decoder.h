#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "nn/key_value_cache.h"
#include "parallel/train/step/replica.h"

namespace triax::text {

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
