#include "triax/core/cuda/kernels/tensors.h"
#include "triax/core/cuda/kernels/unary.h"

namespace triax::cuda::TRIAX_TARGET {

void Cuda::unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& dy,
                          const Tensor& dx, Write write) {
  const Tensor &in = x.defined() ? x : dy, &out = y.defined() ? y : dy;
  visit_float(dx.dtype(), [&]<class T>() {
    functors::Unary::visit(int(op), [&]<class F>() {
      auto launch_of = [&](auto f) {
        launch_run(stream(), dx, operands<T, T, T, T>(f, dx, dy, in, out));
      };
      if (write == Write::add) launch_of(UnaryBackwardAdded<F, T>{});
      else launch_of(UnaryBackward<F, T>{});
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
