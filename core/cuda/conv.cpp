#include "core/cuda/conv.h"

#include "core/cuda/libraries/cudnn.h"

namespace triax::cuda::TRIAX_TARGET {

void CudnnCuda::conv2d(const Conv2d& c, const Tensor& y) {
  if (!cudnn_conv2d(c, y)) Cuda::conv2d(c, y);
}

void CudnnCuda::conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx) {
  if (!cudnn_conv2d_backward_input(c, dy, dx)) Cuda::conv2d_backward_input(c, dy, dx);
}

void CudnnCuda::conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw,
                                       Write write) {
  if (!cudnn_conv2d_backward_weight(c, dy, dw, write))
    Cuda::conv2d_backward_weight(c, dy, dw, write);
}

}  // namespace triax::cuda::TRIAX_TARGET
