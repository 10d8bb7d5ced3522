#include "core/cuda/kernels/rows/softmax.h"
#include "core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

void forward(Stream stream, SoftmaxOf of, const Tensor& x, const Tensor& y) {
  auto [rows, width] = rows_of(y);
  if (rows == 0) return;
  visit_float(y.dtype(), [&, rows = rows, width = width]<class T>() {
    const T* from = values<T>(x);
    T* to = values<T>(y);
    visit_layout<T>(width, rows_aligned(width, from, to), [&]<class Layout>() {
      launch(stream, Layout::grid(rows), SoftmaxForward<T, Layout>{from, to, rows, width, of});
    });
  });
}

void backward(Stream stream, SoftmaxOf of, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  auto [rows, width] = rows_of(dx);
  if (rows == 0) return;
  visit_float(dx.dtype(), [&, rows = rows, width = width]<class T>() {
    const T *out = values<T>(y), *up = values<T>(dy);
    T* to = values<T>(dx);
    visit_layout<T>(width, rows_aligned(width, out, up, to), [&]<class Layout>() {
      launch(stream, Layout::grid(rows), SoftmaxBackward<T, Layout>{out, up, to, rows, width, of});
    });
  });
}

}  // namespace

void Cuda::softmax(const Tensor& x, const Tensor& y) {
  forward(stream(), SoftmaxOf::probability, x, y);
}
void Cuda::log_softmax(const Tensor& x, const Tensor& y) {
  forward(stream(), SoftmaxOf::logarithm, x, y);
}
void Cuda::softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  backward(stream(), SoftmaxOf::probability, y, dy, dx);
}
void Cuda::log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  backward(stream(), SoftmaxOf::logarithm, y, dy, dx);
}

}  // namespace triax::cuda::TRIAX_TARGET
