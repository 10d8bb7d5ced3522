#pragma once
#include "triax/core/tensor.h"

// Walks several strided operands together, for all backends. Always inlined, so that files compiled
// for different instruction levels share no copy.

namespace triax {

/// The dims along which N strided operands are walked together; may be a kernel's argument. Sizes
/// of 1 are dropped, and neighbours that every operand allows to be merged are.
template <int N> struct Strides {
  int rank = 0;
  int64_t numel = 1;
  int64_t size[Shape::max_rank] = {};
  int64_t stride[Shape::max_rank][N] = {};

  /// Adds an innermost dim.
  TRIAX_HD void push(int64_t n, const int64_t (&by)[N]) {
    numel *= n;
    if (n == 1) return;
    bool merges = rank > 0;
    for (int k = 0; k < N; ++k) merges = merges && stride[rank - 1][k] == by[k] * n;
    int d = merges ? rank - 1 : rank++;
    size[d] = merges ? size[d] * n : n;
    for (int k = 0; k < N; ++k) stride[d][k] = by[k];
  }
  /// True for one run of elements, contiguous in every operand.
  TRIAX_HD bool contiguous() const {
    bool ones = rank <= 1;
    for (int k = 0; k < N && rank == 1; ++k) ones = ones && stride[0][k] == 1;
    return ones;
  }
  /// True if the innermost dim can be walked in packs: in every operand its elements lie side by
  /// side, with packs that start at multiples of `packed`, or are one that is repeated (stride 0).
  TRIAX_HD bool packs(int packed) const {
    bool fit = rank > 0 && size[rank - 1] % packed == 0;
    for (int k = 0; k < N && fit; ++k) {
      bool repeated = stride[rank - 1][k] == 0;
      fit = repeated || stride[rank - 1][k] == 1;
      for (int d = 0; d < rank - 1; ++d) fit = fit && (repeated || stride[d][k] % packed == 0);
    }
    return fit;
  }
  /// Returns these strides with a pack in the place of an element.
  TRIAX_HD Strides in_packs(int packed) const {
    Strides s = *this;
    s.numel /= packed;
    s.size[rank - 1] /= packed;
    for (int k = 0; k < N; ++k) s.stride[rank - 1][k] *= packed;
    return s;
  }
  /// Returns the elements of the innermost dim.
  TRIAX_HD int64_t inner() const { return rank ? size[rank - 1] : 1; }
  /// Returns these strides without the innermost dim.
  TRIAX_HD Strides outer() const {
    Strides s = *this;
    if (rank) s.numel = numel ? numel / size[--s.rank] : 0;
    return s;
  }
  /// Returns operand k's stride of the innermost dim; 0 if one element is repeated along it.
  TRIAX_HD int64_t step(int k) const { return rank ? stride[rank - 1][k] : 0; }

  /// Finds the offsets of the element numbered `i` in row-major order.
  TRIAX_HD void at(int64_t i, int64_t (&offset)[N]) const {
    for (int k = 0; k < N; ++k) offset[k] = 0;
    for (int d = rank - 1; d >= 0; --d) {
      int64_t rest = 0;  // divided in 32 bits where they suffice: in 64 it is slow
      if (d > 0) rest = (i | size[d]) >> 32 ? i / size[d] : uint32_t(i) / uint32_t(size[d]);
      int64_t here = d > 0 ? i - rest * size[d] : i;
      for (int k = 0; k < N; ++k) offset[k] += here * stride[d][k];
      i = rest;
    }
  }
};

/// Returns the element stride of `x` along dim `d` of `rank`: dims in front of x's own, and dims of
/// size 1 that stand for a longer one, have stride 0.
inline __attribute__((always_inline)) int64_t stride_of(const Tensor& x, int d, int rank,
                                                        int64_t size) {
  int own = d - (rank - x.rank());
  return own < 0 || (x.size(own) == 1 && size != 1) ? 0 : x.strides()[own];
}

/// Returns the dims of the first operand; the others are expanded to it.
template <class... Rest>
inline __attribute__((always_inline)) Strides<1 + sizeof...(Rest)> strides_of(const Tensor& y,
                                                                              const Rest&... x) {
  Strides<1 + sizeof...(Rest)> s;
  for (int d = 0, rank = y.rank(); d < rank; ++d)
    s.push(y.size(d), {y.strides()[d], stride_of(x, d, rank, y.size(d))...});
  return s;
}

/// Returns the dims of a copy, the one that `to` walks in the smallest steps last.
inline __attribute__((always_inline)) Strides<2> copy_strides(const Tensor& to,
                                                              const Tensor& from) {
  int order[Shape::max_rank], rank = 0;
  for (int d = 0; d < to.rank(); ++d) {
    int at = rank++;
    for (; at > 0 && to.strides()[order[at - 1]] < to.strides()[d]; --at) order[at] = order[at - 1];
    order[at] = d;
  }
  Strides<2> s;
  for (int k = 0; k < rank; ++k)
    s.push(to.size(order[k]), {to.strides()[order[k]], from.strides()[order[k]]});
  return s;
}

/// Returns the dim in which the second operand has neighbours, if that is not the last one and both
/// are of `least` elements or more, so that a transpose in tiles pays; else -1.
inline __attribute__((always_inline)) int transposed_dim(const Strides<2>& s, int64_t least) {
  int last = s.rank - 1;
  if (last < 1 || s.step(1) == 1 || s.size[last] < least) return -1;
  for (int d = 0; d < last; ++d)
    if (s.stride[d][1] == 1 && s.size[d] >= least) return d;
  return -1;
}

}  // namespace triax
