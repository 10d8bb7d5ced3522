#pragma once
#include "core/cuda/convert.h"
#include "core/cuda/pack.h"
#include "core/functors.h"

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

}  // namespace triax::cuda::TRIAX_TARGET
