#include "core/cuda/kernels/attention/attention.h"
#include "core/cuda/kernels/attention/attention_heads.h"

namespace triax::cuda::TRIAX_TARGET {

void Cuda::tiled_attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  visit_float(a.in.q.dtype(), [&]<class T>() {
    visit_head_width(a.head_dim(), [&]<int width>() {
      using Kernel = AttentionForward<T, width>;
      Kernel kernel{attention_heads<T>(a, shifted_rows(), y), values<T>(y),
                    values<Accumulator<T>>(lse)};
      int64_t blocks = attention_blocks(a.sequences() * a.heads(), a.time, Kernel::rows);
      if (blocks > 0) launch(stream(), {blocks}, kernel);
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
