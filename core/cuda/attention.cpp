#include "core/cuda/cuda.h"
#include "core/cuda/cudnn.h"

// Which kernels compute an attention.

namespace triax::cuda::TRIAX_TARGET {

void Cuda::causal_attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  if (!fused_attention(a, y, lse)) tiled_attention(a, y, lse);
}

void Cuda::causal_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                     const Tensor& dy, const Tensor& dqkv) {
  if (!fused_attention_backward(a, y, lse, dy, dqkv)) tiled_attention_backward(a, y, lse, dy, dqkv);
}

}  // namespace triax::cuda::TRIAX_TARGET
