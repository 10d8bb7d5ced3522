#pragma once
#include "core/cuda/kernels/attention_tile.h"
#include "core/cuda/tensors.h"
#include "core/error.h"

// The host's side of both directions of triax's own attention.

namespace triax::cuda::TRIAX_TARGET {

constexpr int64_t widest_attention_head = 256;

/// Call `f.operator()<width>()` with the smallest width of tiles that holds a head. Throws Error 78
/// if none does.
template <class F> void visit_head_width(int64_t head_dim, F&& f) {
  if (head_dim < 1 || head_dim > widest_attention_head)
    throw Error(Exit::config, "causal_attention: head size " + std::to_string(head_dim) +
                                  "; expected at most " + std::to_string(widest_attention_head) +
                                  " on cuda");
  if (head_dim <= 64) f.template operator()<64>();
  else if (head_dim <= 128) f.template operator()<128>();
  else f.template operator()<256>();
}

/// `shift`: of the mask's rows, on the device, or null; `others`: all tensors beside qkv that have
/// rows of heads.
template <class T, class... Others>
AttentionHeads<T> attention_heads(const Attention& a, const int64_t* shift,
                                  const Others&... others) {
  using A = Accumulator<T>;
  bool packed = a.head_dim * int64_t(sizeof(T)) % 16 == 0 &&
                packs_fit(values<T>(a.qkv), values<T>(others)...);
  return {values<T>(a.qkv), a.time, a.heads(),
          int(a.head_dim),  packed, A(1) / fn::sqrt(A(a.head_dim)),
          a.mask,           shift};
}

/// A block for every `rows` rows of every head of every sequence; 0 if there are none.
template <class T>
int64_t attention_blocks(const AttentionHeads<T>& heads, int64_t tokens, int rows) {
  return tokens == 0 ? 0 : tokens / heads.time * heads.heads * heads.blocks(rows);
}

}  // namespace triax::cuda::TRIAX_TARGET
