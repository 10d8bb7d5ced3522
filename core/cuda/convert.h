#pragma once
#include "core/dtype.h"

namespace triax::cuda::TRIAX_TARGET {

/// Low-precision floats convert through f32, everything else directly.
template <class To, class From> TRIAX_HD To convert(From x) {
  if constexpr (__is_same(To, From)) return x;
  else if constexpr (__is_same(From, Half) || __is_same(From, BFloat16))
    return convert<To>(float(x));
  else if constexpr (__is_same(To, Half) || __is_same(To, BFloat16)) return To(float(x));
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

}  // namespace triax::cuda::TRIAX_TARGET
