#pragma once
#include "triax/core/cpu/products/gemm.h"
#include "triax/core/shared/convert.h"

// Products of one row, as decoding makes them for each token. Every number of the right operand is
// used once, so packing it would take longer than the product: it is read in place, columns along
// depth.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Returns `n` rounded up to whole vectors.
template <class A> constexpr int64_t whole_vectors(int64_t n) { return round_up(n, lanes<A>); }

/// Converts n elements that lie `step` apart; zeros fill up the last vector.
template <class T, class A> void widen(const T* from, int64_t step, int64_t n, A* to) {
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = convert<A>(from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = convert<A>(from[i * step]);
  }
  for (int64_t i = n; i < whole_vectors<A>(n); ++i) to[i] = 0;
}

/// Returns the product of x [depth], as `widen` leaves it, and a column: the sum over the lanes is
/// the result. Columns are read one after the other: processors prefetch a single stream best.
template <class A, class T>
TRIAX_HD Vector<A> multiply_column(const A* x, const T* column, int64_t depth) {
  constexpr int n = lanes<A>;
  Vector<A> even{}, odd{};  // one sum would wait for its adder
  int64_t k = 0;
#pragma GCC unroll 2
  for (; k + 2 * n <= depth; k += 2 * n) {
    even = fma(load<A>(x + k), load<A>(column + k), even);
    odd = fma(load<A>(x + k + n), load<A>(column + k + n), odd);
  }
  if (k + n <= depth) {
    even = fma(load<A>(x + k), load<A>(column + k), even);
    k += n;
  }
  if (k < depth) {
    T part[n] = {};
    for (int64_t i = k; i < depth; ++i) part[i - k] = column[i];
    even = fma(load<A>(x + k), load<A>(part), even);
  }
  return even + odd;
}

/// Returns the products of x [depth] with `count` columns of b, at most one per lane. Lanes past
/// them repeat the last.
template <class A, class T>
TRIAX_HD Vector<A> multiply_columns(const A* x, const Operand<T>& b, int64_t count, int64_t depth) {
  constexpr int n = lanes<A>;
  Vector<A> sums[n];
  for (int j = 0; j < n; ++j)
    sums[j] = multiply_column(x, b.data + fn::min<int64_t>(j, count - 1) * b.outer, depth);
  transpose<A>(sums);
#pragma GCC unroll 4
  for (int half = n / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
