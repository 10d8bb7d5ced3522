#pragma once
#include "triax/core/cuda/kernels/attention/attention_tile.h"
#include "triax/core/cuda/kernels/tensors.h"
#include "triax/core/error.h"

// The host's side of both directions of triax's own attention.

namespace triax::cuda::TRIAX_TARGET {

constexpr int64_t widest_attention_head = 256;

/// Calls `f.operator()<width>()` with the smallest width of tiles that holds a head. Throws Error
/// 78 if none does.
template <class F> void visit_head_width(int64_t head_dim, F&& f) {
  if (head_dim < 1 || head_dim > widest_attention_head)
    throw Error(Exit::config, "attention: head size " + std::to_string(head_dim) +
                                  "; expected at most " + std::to_string(widest_attention_head) +
                                  " on cuda");
  if (head_dim <= 64) f.template operator()<64>();
  else if (head_dim <= 128) f.template operator()<128>();
  else f.template operator()<256>();
}

/// Returns x [tokens, kv_heads, group, dim] as kernels take it.
template <class T> AttentionTensor<T> attention_tensor(const Tensor& x) {
  const Shape& s = x.strides();
  return {values<T>(x), s[0], s[1], x.size(2) == 1 ? 0 : s[2]};
}

/// True if rows start at multiples of 16 bytes.
template <class T> bool rows_fit(const AttentionTensor<T>& x) {
  int64_t either = x.token_stride | x.kv_stride | x.head_stride;
  return packs_fit(x.at) && either * int64_t(sizeof(T)) % 16 == 0;
}

/// Returns the arguments of a kernel. `shift` (on the device, or null) is added to the mask's rows;
/// `others`: all tensors beside q, k and v that have rows of heads.
template <class T, class... Others>
AttentionHeads<T> attention_heads(const Attention& a, const int64_t* shift,
                                  const Others&... others) {
  using A = Accumulator<T>;
  int64_t dim = a.head_dim();
  AttentionTensor<T> q = attention_tensor<T>(a.in.q), k = attention_tensor<T>(a.in.k),
                     v = attention_tensor<T>(a.in.v);
  bool packed = dim * int64_t(sizeof(T)) % 16 == 0 && rows_fit(q) && rows_fit(k) && rows_fit(v) &&
                packs_fit(values<T>(others)...);
  return {q,         k,
          v,         a.time,
          a.heads(), a.group(),
          a.band,    int(dim),
          packed,    A(1) / fn::sqrt(A(dim)),
          a.mask,    a.keys_of_mask(),
          shift};
}

/// Returns the blocks needed: one for every `rows` of `length` rows in each of `heads` heads.
inline int64_t attention_blocks(int64_t heads, int64_t length, int rows) {
  return heads * ((length + rows - 1) / rows);
}

}  // namespace triax::cuda::TRIAX_TARGET
