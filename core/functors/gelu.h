#pragma once
#include "triax/core/functors/fast.h"

namespace triax::functors {

/// x Phi(x) in GPT-2's tanh form (Hendrycks and Gimpel, "Gaussian error linear units", 2016).
struct Gelu {
  static constexpr const char* name = "gelu";
  // With u = sqrt(2/pi) (x + 0.044715 x^3): (1 + tanh u) / 2 = 1 / (1 + e^-2u).
  static constexpr double linear = 1.5957691216057308, cubic = linear * 0.044715;  // of 2u
  template <class T> TRIAX_HD static T decay(T x) {
    return fn::fast_exp(x * fn::fma(T(-cubic), x * x, T(-linear)));
  }
  template <class T> TRIAX_HD static T forward(T x) { return fn::fast_divide(x, T(1) + decay(x)); }
  template <class T> TRIAX_HD static T slope(T x, T) {
    T s = fn::fast_divide(T(1), T(1) + decay(x));
    T du = fn::fma(T(3 * cubic), x * x, T(linear));
    return s * fn::fma(x * (T(1) - s), du, T(1));
  }
};

}  // namespace triax::functors
