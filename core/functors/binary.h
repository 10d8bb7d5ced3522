#pragma once
#include "triax/core/functors/list.h"
#include "triax/core/functors/silu.h"
#include "triax/core/numbers/half.h"

namespace triax {

/// Elementwise formulas of two operands; the rules of their gradients stand with the ops.
namespace functors {

struct Add {
  static constexpr const char* name = "add";
  template <class T> TRIAX_HD static T forward(T a, T b) { return a + b; }
};
struct Sub {
  static constexpr const char* name = "sub";
  template <class T> TRIAX_HD static T forward(T a, T b) { return a - b; }
};
struct Mul {
  static constexpr const char* name = "mul";
  template <class T> TRIAX_HD static T forward(T a, T b) { return a * b; }
};
struct Div {
  static constexpr const char* name = "div";
  template <class T> TRIAX_HD static T forward(T a, T b) { return a / b; }
};
/// 1 where equal, else 0.
struct Equal {
  static constexpr const char* name = "equal";
  template <class T> TRIAX_HD static T forward(T a, T b) { return a == b ? T(1) : T(0); }
};
/// 1 where a is less, else 0.
struct Less {
  static constexpr const char* name = "less";
  template <class T> TRIAX_HD static T forward(T a, T b) { return a < b ? T(1) : T(0); }
};
/// The gate of a SwiGLU (Shazeer, "GLU variants improve Transformer", 2020): silu(gate) times b.
struct Swiglu {
  static constexpr const char* name = "swiglu";
  template <class T> TRIAX_HD static T forward(T gate, T b) { return Silu::forward(gate) * b; }
};
/// b times the slope of silu.
struct SiluSlope {
  static constexpr const char* name = "silu_slope";
  template <class T> TRIAX_HD static T forward(T x, T b) { return b * Silu::slope(x, T(0)); }
};

using Binary = List<Add, Sub, Mul, Div, Equal, Less, Swiglu, SiluSlope>;

}  // namespace functors

template <class F> constexpr Binary binary_id() {
  static_assert(functors::Binary::index<F>() >= 0, "put the functor into functors::Binary");
  return Binary(functors::Binary::index<F>());
}

}  // namespace triax
