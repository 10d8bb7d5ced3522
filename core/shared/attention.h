#pragma once
#include "triax/core/numbers/math.h"
#include "triax/core/random.h"
#include "triax/core/tensor.h"

namespace triax {

/// Queries, keys and values of attention heads, or their gradients. A head's queries read keys and
/// values of the key-value head that its group shares (Ainslie et al., "GQA", 2023). Any strides
/// but the last, which is 1: views of one projection are read where they lie.
struct Qkv {
  Tensor q;     // [tokens, kv_heads, group, head_dim]
  Tensor k, v;  // [key tokens, kv_heads, 1, head_dim]
};

/// Views of a projection [tokens, kv_heads, group + 2, head_dim], which has for each key-value head
/// its queries, key and value.
Qkv unpack(const Tensor& packed);

/// The keys that queries see: query i of a sequence sees keys [i + low, i + high], as far as there
/// are any. Every query sees at least one, and the last query the last key.
struct Band {
  int64_t low, high;
  int64_t keys;  ///< keys of a sequence

  static Band all(int64_t time, int64_t keys) { return {-time, keys, keys}; }
  /// The last query stands at the last key; no query sees later ones or, with a window, more than
  /// `window` keys (Jiang et al., "Mistral 7B", 2023).
  static Band causal(int64_t time, int64_t keys, int64_t window = 0) {
    int64_t last = keys - time;
    return {window > 0 && window < keys ? last - window + 1 : -time, last, keys};
  }
  /// Query `query` sees keys [begin, end).
  TRIAX_HD int64_t begin(int64_t query) const { return fn::max<int64_t>(0, query + low); }
  TRIAX_HD int64_t end(int64_t query) const { return fn::min(keys, query + high + 1); }
};

/// softmax(q k^T / sqrt(head_dim)) v over whole sequences of `time` queries and `band.keys` keys.
/// `mask` drops weights: its rows count query tokens, its columns head * keys_of_mask() + key,
/// heads in q's order.
struct Attention {
  Qkv in;
  int64_t time;
  Band band;
  random::Mask mask = {};
  int64_t mask_keys = 0;  ///< keys of a sequence of which these are some; 0: these are all

  int64_t keys_of_mask() const { return mask_keys > 0 ? mask_keys : band.keys; }
  int64_t sequences() const;
  int64_t kv_heads() const;
  int64_t group() const;  ///< query heads per key-value head
  int64_t heads() const;  ///< query heads
  int64_t head_dim() const;
};

}  // namespace triax
