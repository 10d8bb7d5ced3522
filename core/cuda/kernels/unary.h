#pragma once
#include "triax/core/cuda/kernels/convert.h"
#include "triax/core/functors/unary.h"

namespace triax::cuda::TRIAX_TARGET {

template <class F, class T> struct UnaryForward {
  TRIAX_HD T operator()(T x) const { return convert<T>(F::forward(load(x))); }
};

/// Computes dx from dy, x and y. Where a slope does not use x or y, that may be any readable
/// element: the compiler drops the load.
template <class F, class T> struct UnaryBackward {
  TRIAX_HD T operator()(T dy, T x, T y) const {
    return convert<T>(load(dy) * F::slope(load(x), load(y)));
  }
};
/// Computes dx and adds it to the old one.
template <class F, class T> struct UnaryBackwardAdded {
  TRIAX_HD T operator()(T dx, T dy, T x, T y) const {
    return convert<T>(load(dx) + load(dy) * F::slope(load(x), load(y)));
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
