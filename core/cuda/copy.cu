#include "core/cuda/kernels/copy.h"
#include "core/cuda/tensors.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

// The dims, the one that `to` walks in the smallest steps last, so that neighbouring threads write
// neighbours.
Strides<2> by_stride(const Tensor& to, const Tensor& from) {
  int order[Shape::max_rank], rank = 0;
  for (int d = 0; d < to.rank(); ++d) {
    int at = rank++;
    for (; at > 0 && to.strides()[order[at - 1]] < to.strides()[d]; --at) order[at] = order[at - 1];
    order[at] = d;
  }
  Strides<2> s;
  for (int k = 0; k < rank; ++k)
    s.push(to.size(order[k]), {to.strides()[order[k]], from.strides()[order[k]]});
  return s;
}

// The dim in which `from` has neighbours, if that is not the last one, in which `to` has them, and
// both are long enough for tiles; else -1.
int transposed_dim(const Strides<2>& s) {
  constexpr int64_t least = 8;
  int last = s.rank - 1;
  if (last < 1 || s.stride[last][0] != 1 || s.size[last] < least) return -1;
  for (int d = 0; d < last; ++d)
    if (s.stride[d][1] == 1 && s.size[d] >= least) return d;
  return -1;
}

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
  Strides<2> strides = by_stride(to, from);
  const T* x = values<T>(from);
  T* y = values<T>(to);
  int dim = transposed_dim(strides);
  if (strides.contiguous())
    launch_map(stream, strides.numel, pack_size<T>(), CopyRun<T, T>{x, y, strides.numel});
  else if (dim >= 0) copy_transposed(stream, strides, dim, x, y);
  else launch_each(stream, strides, CopyElement<T>{x, y});
}

}  // namespace

void Cuda::copy_here(const Tensor& from, const Tensor& to) {
  if (from.dtype() == to.dtype())
    return visit_bits(to.dtype(), [&]<class T>() { copy_bits<T>(stream(), from, to); });
  Strides<2> strides = by_stride(to, from);
  if (strides.contiguous() && is_float(from.dtype()) && is_float(to.dtype()))
    return visit_float(to.dtype(), [&]<class To>() {
      visit_float(from.dtype(), [&]<class From>() {
        if constexpr (!__is_same(To, From))
          launch_map(stream(), strides.numel, pack_size<To, From>(),
                     CopyRun<To, From>{values<From>(from), values<To>(to), strides.numel});
      });
    });
  visit(to.dtype(), [&]<class To>() {
    launch_each(stream(), strides,
                ConvertElement<To>{values<void>(from), from.dtype(), values<To>(to)});
  });
}

void Cuda::fill(const Tensor& x, double value) {
  Strides<1> strides = strides_of(x);
  visit(x.dtype(), [&]<class V>() {
    visit_bits(x.dtype(), [&]<class T>() {
      if constexpr (sizeof(T) == sizeof(V)) {
        T bits = bit_cast<T>(convert<V>(value));
        T* to = values<T>(x);
        if (strides.contiguous())
          launch_map(stream(), strides.numel, pack_size<T>(), FillRun<T>{to, bits, strides.numel});
        else launch_each(stream(), strides, FillElement<T>{to, bits});
      }
    });
  });
}

void Cuda::accumulate(const Tensor& from, const Tensor& to) {
  int64_t n = to.numel();
  visit_float(to.dtype(), [&]<class To>() {
    visit_float(from.dtype(), [&]<class From>() {
      Accumulate<To, From> kernel{values<From>(from), values<To>(to), n};
      launch_map(stream(), n, pack_size<To, From>(), kernel);
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
