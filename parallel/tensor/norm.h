#pragma once
#include "nn/norm.h"
#include "parallel/tensor/tensor_parallel.h"

namespace triax::parallel {

/// nn::LayerNorm outside of split stretches: every tensor-parallel rank holds all of it.
struct LayerNorm : nn::LayerNorm {
  LayerNorm(int64_t width, const TensorParallel& tp)
      : nn::LayerNorm(width, nn::NormOptions{.shard = tp.whole()}) {}
};

/// nn::RmsNorm outside of split stretches: every tensor-parallel rank holds all of it.
struct RmsNorm : nn::RmsNorm {
  RmsNorm(int64_t width, const TensorParallel& tp, double eps = 1e-5)
      : nn::RmsNorm(width, nn::NormOptions{eps, tp.whole()}) {}
};

}  // namespace triax::parallel
