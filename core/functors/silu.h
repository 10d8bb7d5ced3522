#pragma once
#include "triax/core/functors/fast.h"

namespace triax::functors {

/// x sigmoid(x) (Elfwing et al. 2017; swish).
struct Silu {
  static constexpr const char* name = "silu";
  template <class T> TRIAX_HD static T forward(T x) {
    return fn::fast_divide(x, T(1) + fn::fast_exp(-x));
  }
  template <class T> TRIAX_HD static T slope(T x, T) {
    T s = fn::fast_divide(T(1), T(1) + fn::fast_exp(-x));
    return s * (T(1) + x * (T(1) - s));
  }
};

}  // namespace triax::functors
