#pragma once
#include "core/math.h"

namespace triax::functors {

/// x sigmoid(x) (Elfwing et al. 2017; swish).
struct Silu {
  static constexpr const char* name = "silu";
  template <class T> TRIAX_HD static T forward(T x) { return x / (T(1) + fn::exp(-x)); }
  template <class T> TRIAX_HD static T slope(T x, T) {
    T s = fn::sigmoid(x);
    return s * (T(1) + x * (T(1) - s));
  }
};

}  // namespace triax::functors
