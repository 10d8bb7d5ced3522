#pragma once
#include "triax/core/tensor.h"

// Makes a reduction over any dims into reductions over one, for all backends. Always inlined, so
// that files compiled for different instruction levels share no copy.

namespace triax {

/// x [outer, reduced, inner] -> y [outer, inner].
struct Extent {
  int64_t outer = 1, reduced = 1, inner = 1;
};

/// The innermost group of neighbouring reduced dims, and what remains in front of it.
struct ReductionCut {
  Extent extent;
  int front;             ///< dims in front of the group
  bool reduces = false;  ///< some of those are reduced too
};

/// Cuts the first `rank` dims of x. A dim is reduced where y's size is 1 and x's is not.
inline __attribute__((always_inline)) ReductionCut innermost(const Tensor& x, const Tensor& y,
                                                             int rank) {
  ReductionCut c{{}, rank};
  int d = rank - 1;
  for (; d >= 0 && (y.size(d) != 1 || x.size(d) == 1); --d) c.extent.inner *= x.size(d);
  for (; d >= 0 && y.size(d) == 1; --d) c.extent.reduced *= x.size(d);
  c.front = d + 1;
  for (; d >= 0; --d) {
    c.extent.outer *= x.size(d);
    c.reduces = c.reduces || (y.size(d) == 1 && x.size(d) != 1);
  }
  return c;
}

}  // namespace triax
