#include "triax/core/cuda/cuda.h"
#include "triax/core/cuda/libraries/cudnn.h"

// Chooses the kernels that compute an attention.

namespace triax::cuda::TRIAX_TARGET {

void Cuda::attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  if (!fused_attention(a, y, lse)) tiled_attention(a, y, lse);
}

void Cuda::attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                              const Tensor& dy, const Qkv& d) {
  if (!fused_attention_backward(a, y, lse, dy, d)) tiled_attention_backward(a, y, lse, dy, d);
}

}  // namespace triax::cuda::TRIAX_TARGET
