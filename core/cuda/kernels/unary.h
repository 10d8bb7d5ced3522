#pragma once
#include "core/cuda/convert.h"
#include "core/cuda/pack.h"
#include "core/functors/unary.h"

namespace triax::cuda::TRIAX_TARGET {

/// y[i] = F(x[i]).
template <class F, class T> struct UnaryForward {
  static constexpr int threads = 256;
  const T* x;
  T* y;
  int64_t n;

  TRIAX_HD void operator()(const Thread& t) const {
    map(
        t, n, y, [](T v) { return convert<T>(F::forward(load(v))); }, x);
  }
};

/// dx[i] = dy[i] * slope(x[i], y[i]), or +=. Where a slope does not use x or y, that may be any
/// readable n elements: the compiler drops the load.
template <class F, class T, bool add> struct UnaryBackward {
  static constexpr int threads = 256;
  const T *x, *y, *dy;
  T* dx;
  int64_t n;

  TRIAX_HD void operator()(const Thread& t) const {
    auto slope = [](T up, T in, T out) { return load(up) * F::slope(load(in), load(out)); };
    if constexpr (add)
      map(
          t, n, dx,
          [=](T old, T up, T in, T out) { return convert<T>(load(old) + slope(up, in, out)); }, dx,
          dy, x, y);
    else
      map(
          t, n, dx, [=](T up, T in, T out) { return convert<T>(slope(up, in, out)); }, dy, x, y);
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
