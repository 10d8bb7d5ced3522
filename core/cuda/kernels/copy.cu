#include "core/cuda/kernels/copy.h"
#include "core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

template <class T>
void copy_transposed(Stream stream, const Strides<2>& s, int dim, const T* from, T* to) {
  int last = s.rank - 1;
  Strides<2> others;
  for (int d = 0; d < last; ++d)
    if (d != dim) others.push(s.size[d], s.stride[d]);
  CopyTransposed<T> kernel{
      from, to, s.size[dim], s.size[last], s.stride[dim][0], s.stride[last][1], others};
  if (kernel.blocks() > 0) launch(stream, {kernel.blocks()}, kernel);
}

template <class T> void copy_bits(Stream stream, const Tensor& from, const Tensor& to) {
  Strides<2> strides = copy_strides(to, from);
  int dim = strides.step(0) == 1 ? transposed_dim(strides, 8) : -1;
  if (dim >= 0) copy_transposed(stream, strides, dim, values<T>(from), values<T>(to));
  else launch_strided(stream, strides, operands<T, T>(Convert<T, T>{}, to, from));
}

}  // namespace

void Cuda::copy_here(const Tensor& from, const Tensor& to) {
  if (from.dtype() == to.dtype())
    return visit_bits(to.dtype(), [&]<class T>() { copy_bits<T>(stream(), from, to); });
  Strides<2> strides = copy_strides(to, from);
  if (strides.contiguous() && is_float(from.dtype()) && is_float(to.dtype()))
    return visit_float(to.dtype(), [&]<class To>() {
      visit_float(from.dtype(), [&]<class From>() {
        if constexpr (!__is_same(To, From))
          launch_run(stream(), to, operands<To, From>(Convert<To, From>{}, to, from));
      });
    });
  visit(to.dtype(), [&]<class To>() {
    launch_each(stream(), strides,
                ConvertElement<To>{values<void>(from), from.dtype(), values<To>(to)});
  });
}

void Cuda::fill(const Tensor& x, double value) {
  visit(x.dtype(), [&]<class V>() {
    visit_bits(x.dtype(), [&]<class T>() {
      if constexpr (sizeof(T) == sizeof(V)) {
        Fill<T> f{bit_cast<T>(convert<V>(value))};
        launch_strided(stream(), strides_of(x), operands<T>(f, x));
      }
    });
  });
}

void Cuda::accumulate(const Tensor& from, const Tensor& to) {
  visit_float(to.dtype(), [&]<class To>() {
    visit_float(from.dtype(), [&]<class From>() {
      launch_run(stream(), to, operands<To, From>(Accumulate<To, From>{}, to, from));
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
