#include "triax/core/functors/unary.h"

#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/shared/convert.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t grain = 1 << 14;

// `omp simd` says that elements do not wait for each other, also where y is x itself: without it
// the compiler's test for overlap would send every in-place call through the scalar loop.

template <class F, class T> void forward(const Tensor& x, const Tensor& y) {
  const T* from = values<T>(x);
  T* to = values<T>(y);
  parallel_for(y.numel(), grain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = convert<T>(F::forward(load(from[i])));
  });
}

// A slope may not use x (or y), which may then be undefined: dy stands in, a load the compiler
// drops.
template <class F, class T, Write write>
void backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  const T* up = values<T>(dy);
  const T* in = x.defined() ? values<T>(x) : up;
  const T* out = y.defined() ? values<T>(y) : up;
  T* to = values<T>(dx);
  parallel_for(dx.numel(), grain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i)
      put<write>(to[i], load(up[i]) * F::slope(load(in[i]), load(out[i])));
  });
}

}  // namespace

void Cpu::unary(Unary op, const Tensor& x, const Tensor& y) {
  visit_float(y.dtype(), [&]<class T>() {
    functors::Unary::visit(int(op), [&]<class F>() { forward<F, T>(x, y); });
  });
}

void Cpu::unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& dy,
                         const Tensor& dx, Write write) {
  visit_float(dx.dtype(), [&]<class T>() {
    functors::Unary::visit(int(op), [&]<class F>() {
      visit_write(write, [&]<Write w>() { backward<F, T, w>(x, y, dy, dx); });
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
