#pragma once
#include "triax/core/functors/gelu.h"
#include "triax/core/functors/list.h"
#include "triax/core/functors/silu.h"

namespace triax {

/// Elementwise formulas of one operand, written once for every backend, with what
/// core/numbers/math.h has. Each has the op's `name`, `forward(x)` and `slope(x, y)`, the
/// derivative at x, where y = forward(x); CONTRIBUTING.md adds one. `T` is float (also for f16 and
/// bf16 tensors) or double.
namespace functors {

struct Neg {
  static constexpr const char* name = "neg";
  template <class T> TRIAX_HD static T forward(T x) { return -x; }
  template <class T> TRIAX_HD static T slope(T, T) { return T(-1); }
};
struct Exp {
  static constexpr const char* name = "exp";
  template <class T> TRIAX_HD static T forward(T x) { return fn::exp(x); }
  template <class T> TRIAX_HD static T slope(T, T y) { return y; }
};
struct Log {
  static constexpr const char* name = "log";
  template <class T> TRIAX_HD static T forward(T x) { return fn::log(x); }
  template <class T> TRIAX_HD static T slope(T x, T) { return T(1) / x; }
};
struct Sqrt {
  static constexpr const char* name = "sqrt";
  template <class T> TRIAX_HD static T forward(T x) { return fn::sqrt(x); }
  template <class T> TRIAX_HD static T slope(T, T y) { return T(0.5) / y; }
};
struct Tanh {
  static constexpr const char* name = "tanh";
  template <class T> TRIAX_HD static T forward(T x) { return fn::tanh(x); }
  template <class T> TRIAX_HD static T slope(T, T y) { return T(1) - y * y; }
};
struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  template <class T> TRIAX_HD static T forward(T x) { return fn::sigmoid(x); }
  template <class T> TRIAX_HD static T slope(T, T y) { return y * (T(1) - y); }
};
struct Relu {
  static constexpr const char* name = "relu";
  template <class T> TRIAX_HD static T forward(T x) { return x > T(0) ? x : x != x ? x : T(0); }
  template <class T> TRIAX_HD static T slope(T x, T) { return x > T(0) ? T(1) : T(0); }
};
struct Abs {
  static constexpr const char* name = "abs";
  template <class T> TRIAX_HD static T forward(T x) { return fn::max(x, -x) + T(0); }  // no -0
  template <class T> TRIAX_HD static T slope(T x, T) { return T(x > T(0)) - T(x < T(0)); }
};
/// ln(1 + e^x) (Dugas et al., "Incorporating second-order functional knowledge for better option
/// pricing", 2000), of a power that cannot overflow.
struct Softplus {
  static constexpr const char* name = "softplus";
  template <class T> TRIAX_HD static T forward(T x) {
    // d, what of e is left in 1 + e, is exact, and so is ln(1 + d) / d up to ln's own rounding.
    T e = fn::exp(-fn::max(x, -x)), u = T(1) + e, d = u - T(1);
    T rest = fn::select(d > T(0), e * fn::fast_divide(fn::log(u), d), e);
    return fn::max(x, T(0)) + rest;
  }
  template <class T> TRIAX_HD static T slope(T x, T) { return fn::sigmoid(x); }
};
/// x Phi(x) with the error function.
struct GeluErf {
  static constexpr const char* name = "gelu_erf";
  template <class T> TRIAX_HD static T forward(T x) {
    return T(0.5) * x * (T(1) + fn::erf(x * T(0.7071067811865476)));
  }
  template <class T> TRIAX_HD static T slope(T x, T) {
    return T(0.5) * (T(1) + fn::erf(x * T(0.7071067811865476))) +
           x * T(0.3989422804014327) * fn::exp(T(-0.5) * x * x);
  }
};

using Unary = List<Gelu, GeluErf, Neg, Exp, Log, Sqrt, Tanh, Sigmoid, Abs, Softplus, Relu, Silu>;

}  // namespace functors

template <class F> constexpr Unary unary_id() {
  static_assert(functors::Unary::index<F>() >= 0, "put the functor into functors::Unary");
  return Unary(functors::Unary::index<F>());
}
static_assert(unary_id<functors::Gelu>() == Unary::gelu);

}  // namespace triax
