#pragma once
#include "triax/core/cpu/parallel.h"
#include "triax/core/numbers/math.h"
#include "triax/core/shared/strides.h"

// Helpers for the files compiled per instruction level: everything internal to the file.
namespace triax::host {
namespace {

/// Calls f(offset, n) for runs of n elements of the innermost dim, in parallel: from each operand's
/// offset on, s.step() apart.
template <int N, class F> void for_runs(const Strides<N>& s, F f) {
  constexpr int64_t grain = 1 << 14;
  if (s.numel == 0) return;
  Strides<N> rows = s.outer();
  int64_t n = s.inner(), piece = fn::min(n, grain), pieces = (n + piece - 1) / piece;
  parallel_each(rows.numel * pieces, grain / piece, [&](int64_t p) {
    int64_t row = pieces == 1 ? p : p / pieces, first = (p - row * pieces) * piece;
    int64_t offset[N];
    rows.at(row, offset);
    for (int k = 0; k < N; ++k) offset[k] += first * s.step(k);
    f(offset, fn::min(piece, n - first));
  });
}

/// A run of elements, `step` of them apart.
struct Run {
  char* at;
  int64_t step;
};
/// Copies n elements of one dtype.
inline void copy_run(DType dtype, Run from, Run to, int64_t n) {
  visit_bits(dtype, [=]<class T>() {
    const T* x = reinterpret_cast<const T*>(from.at);
    T* y = reinterpret_cast<T*>(to.at);
    if (from.step == 1 && to.step == 1) {
      __builtin_memcpy(y, x, size_t(n) * sizeof(T));
    } else if (from.step == 0 && to.step == 1) {
      T value = *x;
      for (int64_t i = 0; i < n; ++i) y[i] = value;
    } else {
      for (int64_t i = 0; i < n; ++i) y[i * to.step] = x[i * from.step];
    }
  });
}

/// The number of elements, lying apart, that are brought together on the stack at a time: the loops
/// that compute are compiled for neighbours alone.
constexpr int64_t block = 512;
struct Block {
  alignas(64) char at[block * 8];
};

}  // namespace
}  // namespace triax::host
