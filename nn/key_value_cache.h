#pragma once
#include <map>

#include "triax/autograd/ops.h"
#include "triax/nn/batch.h"
#include "triax/nn/module.h"

namespace triax::nn {

/// The keys and values of one sequence's past tokens, for every attention layer that this rank
/// holds, so that the next token is computed alone. Its owner decodes, and hands it to the layers
/// as Batch::cache:
///
///   nn::KeyValueCache cache(context);
///   nn::Batch batch{.input = ids, .first = nn::evaluation, .cache = &cache};  // ids [1, tokens]
///   Tensor logits = model(batch);  // [1, vocabulary]: of the last token
///   cache.advance(ids.size(1));    // parallel::Replica::predict does this
class KeyValueCache {
 public:
  /// `capacity`: tokens, at least 1. Memory is allocated when a layer first asks.
  explicit KeyValueCache(int64_t capacity);

  int64_t capacity() const { return capacity_; }
  /// Returns the number of past tokens: the position of the batch's first.
  int64_t tokens() const { return tokens_; }

  /// Returns causal attention of a batch's queries [tokens, kv_heads, group, head_dim] over past
  /// and own tokens, and stores the batch's k and v [tokens, kv_heads, 1, head_dim]. `layer` tells
  /// layers apart; `window` is AttentionShape's. k and v get no gradient. Throws Error 70 for more
  /// tokens than the capacity.
  Tensor attend(const Module& layer, const Qkv& in, int64_t window = 0);
  [[deprecated("takes {q, k, v}")]] Tensor attend(const Module& layer, const Tensor& q,
                                                  const Tensor& k, const Tensor& v) {
    return attend(layer, {q, k, v});
  }

  /// Counts the batch's tokens as past; call it after the last layer.
  void advance(int64_t tokens);
  /// Forgets all but the first `tokens`.
  void truncate(int64_t tokens);

 private:
  struct Entry {
    Tensor keys, values;  // [capacity, kv_heads, 1, head_dim]
  };
  int64_t capacity_, tokens_ = 0;
  std::map<const Module*, Entry> layers_;
};

/// Returns the position of a batch's first token.
inline int64_t first_position(const Batch& batch) {
  return batch.cache ? batch.cache->tokens() : 0;
}

/// The keys that attend() sees, and the weights that it drops.
struct AttendOptions {
  bool causal = true;
  int64_t window = 0;      ///< AttentionShape::window
  random::Mask mask = {};  ///< RowRanks::attend
};

/// Returns the attention of a batch's tokens over all that they may see: keys of the same sample,
/// here and on other ranks, or those past. in.q [tokens, kv_heads, group, head_dim], in.k and in.v
/// [tokens, kv_heads, 1, head_dim]; `layer` tells layers apart.
Tensor attend(const Module& layer, const Batch& batch, const Qkv& in, const AttendOptions& o = {});
/// Returns that of a projection [tokens, kv_heads, group + 2, head_dim]. Its gradient is one
/// tensor.
Tensor attend(const Module& layer, const Batch& batch, const Tensor& qkv,
              const AttendOptions& o = {});

/// Returns the rows [tokens, width] for which a last layer makes predictions: all or, while
/// decoding, the last one.
inline Tensor predicted_rows(const Tensor& x, const Batch& batch) {
  return batch.cache ? narrow(x, 0, x.size(0) - 1, 1) : x;
}

}  // namespace triax::nn
