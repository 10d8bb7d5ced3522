#include "core/cuda/kernels/unary.h"
#include "core/cuda/tensors.h"

namespace triax::cuda::TRIAX_TARGET {

void Cuda::unary(Unary op, const Tensor& x, const Tensor& y) {
  int64_t n = y.numel();
  visit_float(y.dtype(), [&]<class T>() {
    functors::Unary::visit(int(op), [&]<class F>() {
      launch_map(stream(), n, pack_size<T>(), UnaryForward<F, T>{values<T>(x), values<T>(y), n});
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
