#include "core/cuda/kernels/unary.h"
#include "core/cuda/tensors.h"

namespace triax::cuda::TRIAX_TARGET {

void Cuda::unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& dy,
                          const Tensor& dx, Write write) {
  int64_t n = dx.numel();
  visit_float(dx.dtype(), [&]<class T>() {
    const T* up = values<T>(dy);
    const T* in = x.defined() ? values<T>(x) : up;
    const T* out = y.defined() ? values<T>(y) : up;
    functors::Unary::visit(int(op), [&]<class F>() {
      visit_write(write, [&]<Write w>() {
        UnaryBackward<F, T, w == Write::add> kernel{in, out, up, values<T>(dx), n};
        launch_map(stream(), n, pack_size<T>(), kernel);
      });
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
