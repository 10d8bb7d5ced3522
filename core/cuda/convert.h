#pragma once
#include "core/dtype.h"
#include "core/math.h"

namespace triax::cuda::TRIAX_TARGET {

/// `x` rounded to nearest even, on a GPU by its own instruction (which makes another NaN of a NaN).
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
/// The reverse. Each use stands for itself: what is kept in registers are the 16 bits.
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

/// Low-precision floats convert through f32, everything else directly.
template <class To, class From> TRIAX_HD To convert(From x) {
  if constexpr (__is_same(To, From)) return x;
  else if constexpr (__is_same(From, Half) || __is_same(From, BFloat16))
    return convert<To>(widened(x));
  else if constexpr (__is_same(To, Half) || __is_same(To, BFloat16)) return rounded<To>(float(x));
  else return To(x);
}

/// What a kernel does to the values its output holds, as a template's argument: to = value, or
/// to += value with the sum made in the accumulator.
template <bool add, class T, class A> TRIAX_HD void put(T& to, A value) {
  if constexpr (add) to = convert<T>(convert<A>(to) + value);
  else to = convert<T>(value);
}

/// A stored float as its accumulator.
template <class T> TRIAX_HD Accumulator<T> load(T x) { return convert<Accumulator<T>>(x); }

/// e^x within 2^-22 (1 + |x|) of itself, where fn::exp would be what a kernel waits for: on a GPU
/// by its own instruction, of an argument rounded once. Infinite and NaN x as in fn::exp.
TRIAX_HD float fast_exp(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
#else
  return fn::exp(x);
#endif
}
TRIAX_HD double fast_exp(double x) { return fn::exp(x); }

}  // namespace triax::cuda::TRIAX_TARGET
