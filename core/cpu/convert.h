#pragma once
#include "core/backend.h"
#include "core/math.h"

// Helpers for the files compiled per instruction level: everything internal to the file.
namespace triax::host {
namespace {

/// Low-precision floats convert through f32, everything else directly.
template <class To, class From> TRIAX_HD To convert(From x) {
  if constexpr (__is_same(To, From)) return x;
  else if constexpr (__is_same(From, Half) || __is_same(From, BFloat16))
    return convert<To>(float(x));
  else if constexpr (__is_same(To, Half) || __is_same(To, BFloat16)) return To(float(x));
  else return To(x);
}

/// A stored float as its accumulator.
template <class T> TRIAX_HD Accumulator<T> load(T x) { return convert<Accumulator<T>>(x); }

/// to = value, or to += value with the sum made in the accumulator.
template <Write write, class T, class A> TRIAX_HD void put(T& to, A value) {
  if constexpr (write == Write::add) to = convert<T>(convert<A>(to) + value);
  else to = convert<T>(value);
}

/// The first element, or null if `x` is undefined.
template <class T> TRIAX_HD T* values(const Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data()) : nullptr;
}

}  // namespace
}  // namespace triax::host
