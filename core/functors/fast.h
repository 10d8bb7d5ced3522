#pragma once
#include "triax/core/numbers/math.h"

// Functions of activations: on CPUs as in core/numbers/math.h, on GPUs by instructions, where a
// kernel would wait for the exact functions.

namespace triax::fn {

/// Returns e^x within 2^-22 (1 + |x|) of itself: on a GPU by an instruction, of an argument rounded
/// once; 0 where the result would be subnormal. Infinite and NaN x as in fn::exp.
TRIAX_HD float fast_exp(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
#else
  return exp(x);
#endif
}
TRIAX_HD double fast_exp(double x) { return exp(x); }

/// Returns a / b within 2 ulp: on a GPU with an instruction's reciprocal, within 1 ulp, where a
/// division would call a function; 0 for |b| above 2^126, infinite for subnormal b.
TRIAX_HD float fast_divide(float a, float b) {
#if defined(__CUDA_ARCH__)
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
#else
  return a / b;
#endif
}
TRIAX_HD double fast_divide(double a, double b) { return a / b; }

}  // namespace triax::fn
