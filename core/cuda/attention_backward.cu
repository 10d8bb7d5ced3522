#include "core/cuda/attention.h"
#include "core/cuda/kernels/attention_backward.h"

namespace triax::cuda::TRIAX_TARGET {

void Cuda::tiled_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                    const Tensor& dy, const Tensor& dqkv) {
  visit_float(a.qkv.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    visit_head_width(a.head_dim, [&]<int width>() {
      using Queries = AttentionBackwardQueries<T, width>;
      Scratch<A> delta(allocator(), lse.numel());
      AttentionGradients<T> gradients{attention_heads<T>(a, shifted_rows(), y, dy, dqkv),
                                      values<T>(y),
                                      values<T>(dy),
                                      values<A>(lse),
                                      delta.data(),
                                      values<T>(dqkv)};
      int64_t blocks = attention_blocks(gradients.heads, a.qkv.size(0), Queries::rows);
      if (blocks == 0) return;
      launch(stream(), {blocks}, Queries{gradients});
      launch(stream(), {blocks}, AttentionBackwardKeys<T, width>{gradients});
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
