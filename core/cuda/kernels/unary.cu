#include "triax/core/cuda/kernels/tensors.h"
#include "triax/core/cuda/kernels/unary.h"

namespace triax::cuda::TRIAX_TARGET {

void Cuda::unary(Unary op, const Tensor& x, const Tensor& y) {
  visit_float(y.dtype(), [&]<class T>() {
    functors::Unary::visit(int(op), [&]<class F>() {
      launch_run(stream(), y, operands<T, T>(UnaryForward<F, T>{}, y, x));
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
