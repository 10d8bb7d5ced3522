#pragma once
#include <compare>

#include "core/cuda/cudnn_graph.h"

namespace triax::cuda::dnn {

/// What a plan for causal attention is made for.
struct AttentionShape {
  enum class Pass { forward, backward, deterministic_backward };
  int64_t batch, heads, time, head_dim;
  cudnnDataType_t type;  // half or bfloat16
  Pass pass;
  auto operator<=>(const AttentionShape&) const = default;
};

/// The ids of arguments. Memory, in the layout of core/backend.h's Attention: `query` is qkv, `key`
/// and `value` its addresses head_dim and 2 head_dim elements further, and so with gradients; `lse`
/// is [tokens, heads], or [batch, heads, time] where statistics_packed(). Scratch of the backward,
/// f32: `delta` [batch, heads, time], `dquery_sum` [batch, heads, time, head_dim] (not when
/// deterministic). Host: `scale` 1 / sqrt(head_dim), `masked` -infinity, `one` 1.
enum AttentionArgument : int64_t {
  query = 1,
  key,
  value,
  output,
  lse,
  doutput,
  dquery,
  dkey,
  dvalue,
  delta,
  dquery_sum,
  scale,
  masked,
  one
};

/// Whether version `version` of the library (cudnnGetVersion) ignores the strides of the softmax
/// statistics: it writes them as they are from 9.12 on, and reads them so from 9.26 on.
bool statistics_packed(AttentionShape::Pass pass, size_t version);

/// Whether version `version` is to be asked for `shape`. Before 9.10.2 it has errors; up to 9.15
/// the backward needs whole blocks of 128 tokens. Lengths are multiples of 64: text that grows
/// token by token would have every one of its lengths planned and compiled.
bool is_supported(const AttentionShape& shape, size_t version);

/// y = softmax(scale q k^T, causal) v and its statistics; 14 ops, which the library fuses (Dao,
/// "FlashAttention-2", 2023).
Graph attention_forward(const AttentionShape& shape, bool packed_statistics);

/// Its gradient, from the statistics; 22 ops. The sums over keys of the query's gradient are made
/// with atomics, in no fixed order, unless deterministic, which takes 2 bytes of workspace for
/// every pair of tokens.
Graph attention_backward(const AttentionShape& shape, bool packed_statistics);

}  // namespace triax::cuda::dnn
