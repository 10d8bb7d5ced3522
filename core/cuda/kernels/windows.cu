#include "core/cuda/kernels/tensors.h"
#include "core/cuda/kernels/windows.h"

namespace triax::cuda::TRIAX_TARGET {
namespace {

/// Launches body({i}) for i in [0, n).
template <class Body> void launch_count(Stream stream, int64_t n, const Body& body) {
  Strides<1> all;
  all.push(n, {1});
  launch_each(stream, all, body);
}

}  // namespace

void Cuda::patches(const Tensor& x, const Windows& windows, const Tensor& y) {
  visit_float(x.dtype(), [&]<class T>() {
    launch_count(stream(), y.numel(), PatchElement<T>{Images<const T>(x), windows, values<T>(y)});
  });
}

void Cuda::patches_backward(const Tensor& dy, const Windows& windows, const Tensor& dx) {
  visit_float(dx.dtype(), [&]<class T>() {
    launch_count(stream(), dx.numel(),
                 WindowGradient<T>{values<T>(dy), nullptr, windows, Images<T>(dx), false, 1});
  });
}

void Cuda::pool(const Pool2d& p, const Tensor& x, const Tensor& y, const Tensor& chosen) {
  bool max = p.kind == Pool2d::Kind::max;
  visit_float(x.dtype(), [&]<class T>() {
    launch_count(stream(), y.numel(),
                 PoolElement<T>{Images<const T>(x), p.windows, values<T>(y),
                                max ? values<int32_t>(chosen) : nullptr});
  });
}

void Cuda::pool_backward(const Pool2d& p, const Tensor& dy, const Tensor& chosen,
                         const Tensor& dx) {
  bool max = p.kind == Pool2d::Kind::max;
  visit_float(dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    launch_count(
        stream(), dx.numel(),
        WindowGradient<T>{values<T>(dy), max ? values<int32_t>(chosen) : nullptr, p.windows,
                          Images<T>(dx), true, max ? A(1) : A(1) / A(p.windows.elements())});
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
