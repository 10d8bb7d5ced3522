#include "core/cuda/kernels/unary.h"
#include "core/cuda/tensors.h"

namespace triax::cuda::TRIAX_TARGET {

void Cuda::unary(Unary op, const Tensor& x, const Tensor& y) {
  int64_t n = y.numel();
  if (n == 0) return;
  visit_float(y.dtype(), [&]<class T>() {
    functors::Unary::visit(int(op), [&]<class F>() {
      UnaryForward<F, T> kernel{values<T>(x), values<T>(y), n};
      launch(stream(), {map_blocks(n, pack_size<T>(), kernel.threads)}, kernel);
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
