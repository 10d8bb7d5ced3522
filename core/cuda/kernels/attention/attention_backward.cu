#include "core/cuda/kernels/attention/attention_backward.h"
#include "core/cuda/kernels/attention/attention_heads.h"

namespace triax::cuda::TRIAX_TARGET {

void Cuda::tiled_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                    const Tensor& dy, const Qkv& d) {
  visit_float(a.in.q.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    visit_head_width(a.head_dim(), [&]<int width>() {
      using Queries = AttentionBackwardQueries<T, width>;
      using Keys = AttentionBackwardKeys<T, width>;
      Scratch<A> delta(allocator(), lse.numel());
      AttentionGradients<T> gradients{attention_heads<T>(a, shifted_rows(), y, dy),
                                      values<T>(y),
                                      values<T>(dy),
                                      values<A>(lse),
                                      delta.data(),
                                      attention_tensor<T>(d.q),
                                      attention_tensor<T>(d.k),
                                      attention_tensor<T>(d.v)};
      bool& packed = gradients.heads.packed;
      packed = packed && rows_fit(gradients.dq) && rows_fit(gradients.dk) && rows_fit(gradients.dv);
      int64_t sequences = a.sequences();
      if (sequences == 0) return;
      launch(stream(), {attention_blocks(sequences * a.heads(), a.time, Queries::rows)},
             Queries{gradients});
      launch(stream(), {attention_blocks(sequences * a.kv_heads(), a.band.keys, Keys::rows)},
             Keys{gradients});
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
