#include "core/cuda/kernels/index.h"
#include "core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

// Walks y, x and index along y's dims: along `dim` the index walks and x stands.
template <class T>
void pick(Stream stream, const Tensor& x, int dim, const Tensor& index, const Tensor& y) {
  Strides<3> strides;
  bool rows = index.rank() == y.rank() && y.rank() > 1;  // an index for every element, or one
  for (int d = 0; d < y.rank(); ++d) {
    int64_t own = d == dim ? 0 : x.strides()[d];
    int64_t of_index = rows ? index.strides()[d] : d == dim ? index.strides()[0] : 0;
    strides.push(y.size(d), {y.strides()[d], own, of_index});
  }
  launch_each(stream, strides,
              PickElement<T>{values<T>(x), indices_of(index), values<T>(y), x.strides()[dim]});
}

// Walks dx, dy and index along all dims of dy but `dim`.
void add(Stream stream, const Tensor& dy, int dim, const Tensor& index, const Tensor& dx) {
  Strides<3> strides;
  bool rows = index.rank() == dy.rank() && dy.rank() > 1;
  for (int d = 0; d < dy.rank(); ++d)
    if (d != dim)
      strides.push(dy.size(d),
                   {dx.strides()[d], dy.strides()[d], rows ? index.strides()[d] : int64_t{0}});
  int64_t step_index = index.strides()[rows ? dim : 0];
  visit_float(dy.dtype(), [&]<class T>() {
    visit_sum<T>(dx.dtype(), [&]<class U>() {
      AddPicked<U, T> body{values<U>(dx),     values<T>(dy),     indices_of(index), dy.size(dim),
                           dx.strides()[dim], dy.strides()[dim], step_index};
      launch_each(stream, strides, body);
    });
  });
}

}  // namespace

void Cuda::index_select(const Tensor& x, int dim, const Tensor& index, const Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>() { pick<T>(stream(), x, x.shape().index(dim), index, y); });
}
void Cuda::gather(const Tensor& x, const Tensor& index, const Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>() { pick<T>(stream(), x, x.rank() - 1, index, y); });
}
void Cuda::index_add(const Tensor& dy, int dim, const Tensor& index, const Tensor& dx) {
  add(stream(), dy, dx.shape().index(dim), index, dx);
}
void Cuda::scatter_add(const Tensor& dy, const Tensor& index, const Tensor& dx) {
  add(stream(), dy, dy.rank() - 1, index, dx);
}

}  // namespace triax::cuda::TRIAX_TARGET
