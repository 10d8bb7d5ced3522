#pragma once
#include <cstddef>
#include <cstdint>

#include "triax/core/numbers/half.h"

namespace triax {

enum class DType : uint8_t { f32, f64, f16, bf16, i32, i64, u8 };
inline constexpr int dtype_count = 7;
using enum DType;

/// Bytes of one element.
constexpr size_t size_of(DType t) {
  constexpr size_t sizes[dtype_count] = {4, 8, 2, 2, 4, 8, 1};
  return sizes[int(t)];
}
constexpr const char* name(DType t) {
  constexpr const char* names[dtype_count] = {"f32", "f64", "f16", "bf16", "i32", "i64", "u8"};
  return names[int(t)];
}
constexpr bool is_float(DType t) { return t <= DType::bf16; }
constexpr bool is_index(DType t) { return t == DType::i32 || t == DType::i64; }

/// Returns the dtype of sums and of leaves' gradients: f64 for f64, f32 otherwise.
constexpr DType accumulator(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }
template <class T> struct AccumulatorOf { using type = float; };
template <> struct AccumulatorOf<double> { using type = double; };
template <class T> using Accumulator = typename AccumulatorOf<T>::type;

template <class T> constexpr DType dtype_of() {
  if constexpr (__is_same(T, float)) return DType::f32;
  if constexpr (__is_same(T, double)) return DType::f64;
  if constexpr (__is_same(T, Half)) return DType::f16;
  if constexpr (__is_same(T, BFloat16)) return DType::bf16;
  if constexpr (__is_same(T, int32_t)) return DType::i32;
  if constexpr (__is_same(T, int64_t)) return DType::i64;
  if constexpr (__is_same(T, uint8_t)) return DType::u8;
}

/// Calls `f.operator()<T>()` with the C++ type of `t`. The op has already refused other dtypes.
template <class F>
inline __attribute__((always_inline)) decltype(auto) visit_float(DType t, F&& f) {
  switch (t) {
    case DType::f64:
      return f.template operator()<double>();
    case DType::f16:
      return f.template operator()<Half>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    default:
      return f.template operator()<float>();
  }
}
/// Calls `f.operator()<U>()` with T's accumulator or T, whichever `t` is.
template <class T, class F> inline __attribute__((always_inline)) void visit_sum(DType t, F&& f) {
  if (t == dtype_of<Accumulator<T>>()) f.template operator()<Accumulator<T>>();
  else f.template operator()<T>();
}
/// Calls `f.operator()<U>()` with an unsigned integer as large as an element: for moving bytes.
template <class F> inline __attribute__((always_inline)) void visit_bits(DType t, F&& f) {
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
template <class F>
inline __attribute__((always_inline)) decltype(auto) visit_index(DType t, F&& f) {
  return t == DType::i64 ? f.template operator()<int64_t>() : f.template operator()<int32_t>();
}
template <class F> inline __attribute__((always_inline)) decltype(auto) visit(DType t, F&& f) {
  switch (t) {
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    default:
      return visit_float(t, static_cast<F&&>(f));
  }
}

}  // namespace triax
