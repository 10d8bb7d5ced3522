// Kernels with what check.py must find: planted_test.py. And one without.
#include "triax/core/cuda/kernels/pack.h"
#include "triax/core/cuda/runtime/launch.h"

namespace triax::cuda::device {

/// y = f(x), 16 bytes at a time.
template <class F> struct Wide {
  static constexpr int threads = 256;
  F f;
  const float* x;
  float* y;
  int64_t n;

  TRIAX_HD void operator()(const Thread& t) const { map(t, n, y, f, x); }
};
/// Two bytes at a time.
template <class T> struct Scalar {
  static constexpr int threads = 256;
  const T* x;
  T* y;
  int64_t n;

  TRIAX_HD void operator()(const Thread& t) const {
    for (int64_t i = t.global(); i < n; i += t.globals()) y[i] = T(float(x[i]) * 2);
  }
};
struct Halve {
  float by = 2;
  TRIAX_HD float operator()(float x) const { return x * by; }
};
struct Divide {
  float by = 2;
  TRIAX_HD float operator()(float x) const { return by / x; }
};
/// Looks a value up in an array that no register can hold.
struct Look {
  int first = 0;
  TRIAX_HD float operator()(float x) const {
    float table[64];
    for (int i = 0; i < 64; ++i) table[i] = x * float(i + first);
    return table[int(x) & 63] + table[first & 63];
  }
};

void launch_planted(Stream stream, const float* x, float* y, int64_t n) {
  launch(stream, {}, Wide<Halve>{{}, x, y, n});
  launch(stream, {}, Wide<Divide>{{}, x, y, n});
  launch(stream, {}, Wide<Look>{{}, x, y, n});
  launch(stream, {}, Scalar<BFloat16>{nullptr, nullptr, n});
}

}  // namespace triax::cuda::device
