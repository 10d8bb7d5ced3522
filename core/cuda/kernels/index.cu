#include "triax/core/cuda/kernels/tensors.h"
#include "triax/core/shared/indices.h"

namespace triax::cuda::TRIAX_TARGET {

/// One element of index_select and gather: offsets of y, of x as if its index were 0, and of the
/// index. T: an unsigned integer as large as an element; `move`: x's stride where the index counts.
template <class T> struct PickElement {
  const T* x;
  Indices index;
  T* y;
  int64_t move;

  TRIAX_HD void operator()(const int64_t (&at)[3]) const {
    y[at[0]] = x[at[1] + index[at[2]] * move];
  }
};

/// Adds dx[index[i]] += dy[i] for i in [0, count), ascending, by one thread for everything that may
/// meet in an element. Offsets of dx, dy and index at i = 0, and their steps.
template <class U, class T> struct AddPicked {
  U* dx;
  const T* dy;
  Indices index;
  int64_t count, move, step, step_index;

  TRIAX_HD void operator()(const int64_t (&at)[3]) const {
    U* to = dx + at[0];
    const T* from = dy + at[1];
    for (int64_t i = 0; i < count; ++i)
      put<Write::add>(to[index[at[2] + i * step_index] * move], load(from[i * step]));
  }
};

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
