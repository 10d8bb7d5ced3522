#include "core/cuda/cuda.h"

// Which kernels compute an attention.

namespace triax::cuda::TRIAX_TARGET {

void Cuda::causal_attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  tiled_attention(a, y, lse);
}

void Cuda::causal_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                     const Tensor& dy, const Tensor& dqkv) {
  tiled_attention_backward(a, y, lse, dy, dqkv);
}

}  // namespace triax::cuda::TRIAX_TARGET
