#pragma once
#include "core/convert.h"
#include "core/cpu/gemm.h"

// Products of one row, as decoding makes them for each token. Every number of the right operand
// counts once, so packing it would take longer than the product: it is read where it lies, columns
// along depth.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// `n` rounded up to whole vectors.
template <class A> constexpr int64_t whole_vectors(int64_t n) { return round_up(n, lanes<A>); }

/// to = n elements that lie `step` apart; zeros fill up the last vector.
template <class T, class A> void widen(const T* from, int64_t step, int64_t n, A* to) {
  if (step == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = convert<A>(from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = convert<A>(from[i * step]);
  }
  for (int64_t i = n; i < whole_vectors<A>(n); ++i) to[i] = 0;
}

/// Bytes by which columns are fetched ahead: the caches see several streams, and do it too late.
constexpr int64_t ahead = 6144;

/// Columns that are read side by side.
template <class A> constexpr int columns_together = lanes<A> < 4 ? lanes<A> : 4;

/// sums[j], summed over its lanes, is the product of x [depth] and the column at[j]. x as `widen`
/// leaves it.
template <class A, class T>
TRIAX_HD void multiply_columns(const A* x, const T* const* at, int64_t depth, Vector<A>* sums) {
  constexpr int n = lanes<A>, columns = columns_together<A>;
  Vector<A> even[columns] = {}, odd[columns] = {};  // two sums each: one would wait for its adder
  int64_t k = 0;
  for (; k + 2 * n <= depth; k += 2 * n) {
    Vector<A> x0 = load<A>(x + k), x1 = load<A>(x + k + n);
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) {
      const T* next = at[j] + k + ahead / int64_t(sizeof(T));
      __builtin_prefetch(next);
      if constexpr (2 * n * sizeof(T) > 64) __builtin_prefetch(next + n);
      even[j] = fma(x0, load<A>(at[j] + k), even[j]);
      odd[j] = fma(x1, load<A>(at[j] + k + n), odd[j]);
    }
  }
  if (k + n <= depth) {
    Vector<A> v = load<A>(x + k);
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) even[j] = fma(v, load<A>(at[j] + k), even[j]);
    k += n;
  }
  if (k < depth) {
    Vector<A> v = load<A>(x + k);
    for (int j = 0; j < columns; ++j) {
      T part[n] = {};
      for (int64_t i = k; i < depth; ++i) part[i - k] = at[j][i];
      even[j] = fma(v, load<A>(part), even[j]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < columns; ++j) sums[j] = even[j] + odd[j];
}

/// The products of x [depth] with `count` columns of b, at most as many as a vector has lanes.
/// Lanes past them repeat the last.
template <class A, class T>
TRIAX_HD Vector<A> multiply_columns(const A* x, const Operand<T>& b, int64_t count, int64_t depth) {
  constexpr int n = lanes<A>, columns = columns_together<A>;
  Vector<A> sums[n];
  for (int first = 0; first < n; first += columns) {
    const T* at[columns];
    for (int j = 0; j < columns; ++j)
      at[j] = b.data + fn::min<int64_t>(first + j, count - 1) * b.outer;
    multiply_columns<A>(x, at, depth, sums + first);
  }
  transpose<A>(sums);
#pragma GCC unroll 4
  for (int half = n / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
