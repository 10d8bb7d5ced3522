#pragma once
#include "triax/core/backend.h"
#include "triax/core/numbers/math.h"

// Elements and tensors as kernels of every backend read and write them. Always inlined, so that
// files compiled for different instruction levels share no copy.

namespace triax {

/// Returns `x` rounded to nearest even, on a GPU by an instruction (which changes a NaN's bits).
template <class To> TRIAX_HD To rounded(float x) {
#if defined(__CUDA_ARCH__)
  To y;
  if constexpr (__is_same(To, Half)) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  else asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  return To(x);
#endif
}
/// Returns `x` as f32. Each use converts again: registers keep the 16 bits.
TRIAX_HD float widened(BFloat16 x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("mov.b32 %0, {%2, %1};" : "=f"(y) : "h"(x.bits), "h"(uint16_t(0)));
  return y;
#else
  return float(x);
#endif
}
TRIAX_HD float widened(Half x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  return float(x);
#endif
}

/// Converts low-precision floats through f32, everything else directly.
template <class To, class From> TRIAX_HD To convert(From x) {
  if constexpr (__is_same(To, From)) return x;
  else if constexpr (__is_same(From, Half) || __is_same(From, BFloat16))
    return convert<To>(widened(x));
  else if constexpr (__is_same(To, Half) || __is_same(To, BFloat16)) return rounded<To>(float(x));
  else return To(x);
}

/// Sets `to` to value, or adds it with the sum made in the accumulator.
template <Write write, class T, class A> TRIAX_HD void put(T& to, A value) {
  if constexpr (write == Write::add) to = convert<T>(convert<A>(to) + value);
  else to = convert<T>(value);
}

/// Returns a stored float as its accumulator.
template <class T> TRIAX_HD Accumulator<T> load(T x) { return convert<Accumulator<T>>(x); }

/// Returns the address of the first element, or null if `x` is undefined.
template <class T> inline __attribute__((always_inline)) T* values(const Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data()) : nullptr;
}

}  // namespace triax
