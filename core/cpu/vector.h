#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <type_traits>

#include "triax/core/cpu/cpu.h"

// Vectors as wide as the level's registers, in the compilers' own vector extension.
namespace triax::host::TRIAX_LEVEL {
namespace {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

/// Constrained, so that clang leaves out an overload for pointers in place of refusing it.
template <class A>
requires std::is_arithmetic_v<A>
struct VectorOf {
  typedef A type __attribute__((vector_size(vector_bytes)));
};
/// A register of float or double.
template <class A> using Vector = typename VectorOf<A>::type;
template <class A> constexpr int lanes = vector_bytes / int(sizeof(A));

/// Returns a * b + c, rounded once where the level can.
#if defined(__AVX512F__)
TRIAX_HD __m512 fma(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
TRIAX_HD __m512d fma(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }
#elif defined(__FMA__)
TRIAX_HD __m256 fma(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
TRIAX_HD __m256d fma(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
#else
TRIAX_HD Vector<float> fma(Vector<float> a, Vector<float> b, Vector<float> c) { return a * b + c; }
TRIAX_HD Vector<double> fma(Vector<double> a, Vector<double> b, Vector<double> c) {
  return a * b + c;
}
#endif

/// Converts a vector of BFloat16. Of scalar conversions compilers make slower vectors or none.
TRIAX_HD Vector<float> widened(const BFloat16* from) {
  typedef uint16_t Bits __attribute__((vector_size(vector_bytes / 2)));
  typedef uint32_t Words __attribute__((vector_size(vector_bytes)));
  Bits bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return Vector<float>(__builtin_convertvector(bits, Words) << 16);
}
/// Converts a vector of Half.
TRIAX_HD Vector<float> widened(const Half* from) {
  typedef uint16_t Bits __attribute__((vector_size(vector_bytes / 2)));
  typedef uint32_t Words __attribute__((vector_size(vector_bytes)));
  Bits bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  Words u = __builtin_convertvector(bits, Words), sign = (u & 0x8000u) << 16, a = u & 0x7fffu;
  Words finite = Words(Vector<float>(a << 13) * 0x1p112f), special = (a << 13) | 0x7f800000u;
  return Vector<float>(sign | (a >= 0x7c00u ? special : finite));
}

/// Loads neighbouring elements, converted; any alignment.
template <class A, class T> TRIAX_HD Vector<A> load(const T* from) {
  Vector<A> v;
  if constexpr (__is_same(A, T)) {
    __builtin_memcpy(&v, from, sizeof(v));
  } else if constexpr (__is_same(A, float) && (__is_same(T, Half) || __is_same(T, BFloat16))) {
    v = widened(from);
  } else {
    A each[lanes<A>];
    for (int l = 0; l < lanes<A>; ++l) each[l] = A(from[l]);
    __builtin_memcpy(&v, each, sizeof(v));
  }
  return v;
}
template <class A> TRIAX_HD void store(A* to, const Vector<A>& v) {
  __builtin_memcpy(to, &v, sizeof(v));
}
template <class A> TRIAX_HD Vector<A> broadcast(A x) { return x - Vector<A>{}; }

/// Loads a number into all lanes, with one load. Without asm compilers fold the load into each
/// multiplication, which then competes for the ports that load, or hoist too many loads and spill.
TRIAX_HD Vector<float> broadcast(const float* x) {
#if defined(__AVX512F__)
  Vector<float> v;
  asm volatile("vbroadcastss %1, %0" : "=v"(v) : "m"(*x));
  return v;
#else
  return broadcast(*x);
#endif
}
TRIAX_HD Vector<double> broadcast(const double* x) {
#if defined(__AVX512F__)
  Vector<double> v;
  asm volatile("vbroadcastsd %1, %0" : "=v"(v) : "m"(*x));
  return v;
#else
  return broadcast(*x);
#endif
}

template <int... i> struct Indices {};
template <int n, int... i> struct Count : Count<n - 1, n - 1, i...> {};
template <int... i> struct Count<0, i...> { using type = Indices<i...>; };

/// Swaps the blocks off the diagonal of each 2 h x 2 h block of rows a (above) and b (h below).
template <class A, int h, int... l>
TRIAX_HD void swap_blocks(Vector<A>& a, Vector<A>& b, Indices<l...>) {
  constexpr int n = sizeof...(l);
  Vector<A> upper = __builtin_shufflevector(a, b, ((l & h) ? n + l - h : l)...);
  b = __builtin_shufflevector(a, b, ((l & h) ? n + l : l + h)...);
  a = upper;
}
/// Transposes lanes x lanes in registers (Eklundh 1972: log2(lanes) rounds of block swaps).
template <class A, int h = 1> TRIAX_HD void transpose(Vector<A> (&rows)[lanes<A>]) {
  if constexpr (h < lanes<A>) {
#pragma GCC unroll 16
    for (int i = 0; i < lanes<A>; ++i)
      if ((i & h) == 0) swap_blocks<A, h>(rows[i], rows[i + h], typename Count<lanes<A>>::type{});
    transpose<A, 2 * h>(rows);
  }
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
