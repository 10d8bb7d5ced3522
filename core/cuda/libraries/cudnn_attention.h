#pragma once
#include <compare>

#include "triax/core/cuda/libraries/cudnn_graph.h"

namespace triax::cuda::dnn {

/// Elements from token to token and from head to head; those of a head are contiguous.
struct RowStrides {
  int64_t token = 0, head = 0;
  auto operator<=>(const RowStrides&) const = default;
};

/// The key of a plan for attention. `causal` needs as many keys as queries.
struct AttentionShape {
  enum class Pass { forward, backward, deterministic_backward };
  int64_t batch, heads, time, keys, head_dim;
  bool causal;
  cudnnDataType_t type;  // half or bfloat16
  Pass pass;
  RowStrides q, k, v, dq = {}, dk = {}, dv = {};  // gradients: for the backward
  auto operator<=>(const AttentionShape&) const = default;
};

/// The ids of arguments. Memory: queries, keys and values of core/shared/attention.h and their
/// gradients, `lse` [tokens, heads], or [batch, heads, time] where statistics_packed(). Scratch of
/// the backward, f32: `delta` [batch, heads, time], `dquery_sum` [batch, heads, time, head_dim]
/// (not when deterministic). Host: `scale` 1 / sqrt(head_dim), `masked` -infinity, `one` 1.
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

/// True if version `version` of the library (cudnnGetVersion) ignores the strides of the softmax
/// statistics. It heeds them when it writes from 9.12 on, and when it reads from 9.26 on.
bool statistics_packed(AttentionShape::Pass pass, size_t version);

/// True if version `version` is to be asked for `shape`. Before 9.10.2 it has errors; up to 9.15
/// the backward needs whole blocks of 128 tokens. Lengths are multiples of 64: text that grows
/// token by token would have every one of its lengths planned and compiled.
bool is_supported(const AttentionShape& shape, size_t version);

/// y = softmax(scale q k^T) v and its statistics; 14 ops if causal, which the library fuses (Dao,
/// "FlashAttention-2", 2023).
Graph attention_forward(const AttentionShape& shape, bool packed_statistics);

/// The gradient of attention, from the statistics; 22 ops if causal. The query's gradient is summed
/// over keys with atomics, in no fixed order, unless deterministic, which takes 2 bytes of
/// workspace for every pair of tokens.
Graph attention_backward(const AttentionShape& shape, bool packed_statistics);

}  // namespace triax::cuda::dnn
