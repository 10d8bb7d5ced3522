#pragma once
#include "core/cuda/cuda.h"

namespace triax::cuda::TRIAX_TARGET {

/// Cuda with convolutions by cuDNN where it has them, else by patches and products.
class CudnnCuda final : public Cuda {
 public:
  using Cuda::Cuda;
  void conv2d(const Conv2d& c, const Tensor& y) override;
  void conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx) override;
  void conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw,
                              Write write) override;
};

}  // namespace triax::cuda::TRIAX_TARGET
