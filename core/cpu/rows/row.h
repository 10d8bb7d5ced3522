#pragma once
#include <limits>

#include "triax/core/numbers/math.h"

// Helpers for the files compiled per instruction level: everything internal to the file.
namespace triax::host {
namespace {

/// Returns term(0) + .. + term(n - 1) as four interleaved vector sums (one would wait for its own
/// adder). The order depends on n alone.
template <class A, class F> TRIAX_HD A sum_of(int64_t n, F term) {
  int64_t q = n / 4;
  A s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
  for (int64_t i = 0; i < q; ++i) {
    s0 += term(i);
    s1 += term(i + q);
    s2 += term(i + 2 * q);
    s3 += term(i + 3 * q);
  }
  for (int64_t i = 4 * q; i < n; ++i) s0 += term(i);
  return (s0 + s1) + (s2 + s3);
}

/// Makes two sums at once; term(i, a, b) adds to both.
template <class A, class F> TRIAX_HD void sums_of(int64_t n, F term, A& first, A& second) {
  int64_t h = n / 2;
  A a0 = 0, a1 = 0, b0 = 0, b1 = 0;
#pragma omp simd reduction(+ : a0, a1, b0, b1)
  for (int64_t i = 0; i < h; ++i) {
    term(i, a0, b0);
    term(i + h, a1, b1);
  }
  if (n % 2) term(n - 1, a0, b0);
  first = a0 + a1;
  second = b0 + b1;
}

/// Returns the largest term, at least -inf; NaN terms are passed over.
template <class A, class F> TRIAX_HD A max_of(int64_t n, F term) {
  int64_t h = n / 2;
  A m0 = A(-__builtin_inf()), m1 = m0;
#pragma omp simd reduction(max : m0, m1)
  for (int64_t i = 0; i < h; ++i) {
    m0 = fn::max(A(term(i)), m0);
    m1 = fn::max(A(term(i + h)), m1);
  }
  if (n % 2) m0 = fn::max(A(term(n - 1)), m0);
  A top = fn::max(m0, m1);
  constexpr A lowest = std::numeric_limits<A>::lowest();
  if (top == lowest) {  // clang's reduction begins there, also where all terms are -inf
    top = A(-__builtin_inf());
    for (int64_t i = 0; i < n; ++i) top = fn::max(A(term(i)), top);
  }
  return top;
}

}  // namespace
}  // namespace triax::host
