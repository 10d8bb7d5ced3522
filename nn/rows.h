#pragma once
#include <vector>

#include "triax/autograd/ops.h"
#include "triax/core/shared/attention.h"

namespace triax::nn {

/// Rows [first, first + count) of a sample.
struct Span {
  int64_t first, count;
};

/// The ranks that have other rows of the same samples: context parallelism, as a layer sees it.
class RowRanks {
 public:
  virtual ~RowRanks() = default;
  virtual int64_t count() const = 0;
  /// Returns where this rank's `mine` rows of a sample lie in it, in ascending order. The ranks'
  /// spans are equally many and long, and cover the sample.
  virtual std::vector<Span> spans(int64_t mine) const = 0;
  /// Replaces x by its sum over the ranks. All ranks call it alike.
  virtual void sum(const Tensor& x) const = 0;
  /// Returns triax::attention of this rank's queries over the keys of all ranks: q [tokens,
  /// kv_heads, group, head_dim], k and v [tokens, kv_heads, 1, head_dim], `shape` as of a sample of
  /// this rank's rows alone. Rows of `mask` count those of whole samples, its columns head * keys
  /// of a whole sample + key. All ranks call it alike.
  virtual Tensor attend(const Qkv& in, const AttentionShape& shape,
                        const random::Mask& mask) const = 0;
};

}  // namespace triax::nn
