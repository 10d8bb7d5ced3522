#pragma once
#include <vector>

#include "triax/nn/rows.h"
#include "triax/parallel/comm/communicator.h"
#include "triax/parallel/context/context_parallel.h"

namespace triax::parallel {

/// The arguments of attention over the ranks of cp: `shape` is that of this rank's rows of each
/// sample, `mask` that of whole samples.
struct ContextRows {
  Communicator& cp;
  int64_t samples;
  AttentionShape shape;
  random::Mask mask;
  ExactRows exact = {};

  int64_t rows() const { return shape.time; }
  int64_t all() const { return cp.size() * shape.time; }
  std::vector<nn::Span> spans(int rank) const { return zigzag(cp.size(), rank, rows()); }
  /// Returns x [ranks][lead][rows][width] in the order of positions, [lead][all rows][width].
  Tensor by_position(const Tensor& x, int64_t lead) const;
  /// Returns that the other way, in memory that is sent without copies.
  Tensor by_rank(const Tensor& x, int64_t lead) const;
  /// Returns the keys and values of this rank's rows, [2, tokens, kv_heads, 1, head_dim], in memory
  /// that is sent without copies.
  Tensor keys_values(const Qkv& in) const;
  /// Returns what a kernel is asked for queries and keys at these positions of a sample.
  Attention attention(const Qkv& in, int64_t sample, nn::Span queries, nn::Span keys) const;
};

/// Returns the keys (0) or values (1) of keys_values().
Tensor half_of(const Tensor& both, int64_t which);

/// Returns rows [at, at + count) of sample `i` of `samples`: a view, like x but for dim 0.
Tensor rows_of(const Tensor& x, int64_t samples, int64_t i, nn::Span rows);

Tensor ring_attention(const ContextRows& rows, const Qkv& in);
Tensor gather_attention(const ContextRows& rows, const Qkv& in);
Tensor heads_attention(const ContextRows& rows, const Qkv& in);

}  // namespace triax::parallel
