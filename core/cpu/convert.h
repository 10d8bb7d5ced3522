#pragma once
#include "core/backend.h"

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

/// Call `f.operator()<write>()`.
template <class F> TRIAX_HD void visit_write(Write write, F&& f) {
  if (write == Write::add) f.template operator()<Write::add>();
  else f.template operator()<Write::set>();
}

/// Call `f.operator()<U>()` with T's accumulator or T, whichever `t` is.
template <class T, class F> TRIAX_HD void visit_sum(DType t, F&& f) {
  if (t == dtype_of<Accumulator<T>>()) f.template operator()<Accumulator<T>>();
  else f.template operator()<T>();
}

/// Call `f.operator()<U>()` with an unsigned integer as large as an element: for moving bytes.
template <class F> TRIAX_HD void visit_bits(DType t, F&& f) {
  switch (size_of(t)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}

}  // namespace
}  // namespace triax::host
