#pragma once
#include "core/convert.h"

namespace triax::cuda::TRIAX_TARGET {

/// e^x within 2^-22 (1 + |x|) of itself, where fn::exp would be what a kernel waits for: on a GPU
/// by its own instruction, of an argument rounded once. Infinite and NaN x as in fn::exp.
TRIAX_HD float fast_exp(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
#else
  return fn::exp(x);
#endif
}
TRIAX_HD double fast_exp(double x) { return fn::exp(x); }

}  // namespace triax::cuda::TRIAX_TARGET
