#include "core/convert.h"
#include "core/cpu/cpu.h"
#include "core/cpu/parallel.h"
#include "core/cpu/row.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

// f(row) over rows of `width`, in parallel.
template <class F> void for_rows(const Tensor& x, F f) {
  int64_t width = x.rank() ? x.size(-1) : 1, rows = width ? x.numel() / width : 0;
  parallel_for(rows, (1 << 13) / (width + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) f(r * width, width);
  });
}

template <class T> void softmax_row(const T* x, T* y, int64_t n) {
  using A = Accumulator<T>;
  A largest = max_of<A>(n, [=](int64_t i) { return load(x[i]); });
  if constexpr (__is_same(T, A)) {  // exact enough to be kept in y
    A scale = A(1) / sum_of<A>(n, [=](int64_t i) { return y[i] = fn::exp(x[i] - largest); });
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] *= scale;
    return;
  }
  A sum = sum_of<A>(n, [=](int64_t i) { return fn::exp(load(x[i]) - largest); });
  A scale = A(1) / sum;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = convert<T>(fn::exp(load(x[i]) - largest) * scale);
}

template <class T> void log_softmax_row(const T* x, T* y, int64_t n) {
  using A = Accumulator<T>;
  A largest = max_of<A>(n, [=](int64_t i) { return load(x[i]); });
  A sum = sum_of<A>(n, [=](int64_t i) { return fn::exp(load(x[i]) - largest); });
  A log_sum = fn::log(sum);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = convert<T>((load(x[i]) - largest) - log_sum);
}

}  // namespace

void Cpu::softmax(const Tensor& x, const Tensor& y) {
  visit_float(y.dtype(), [&]<class T>() {
    const T* from = values<T>(x);
    T* to = values<T>(y);
    for_rows(y, [=](int64_t at, int64_t n) { softmax_row(from + at, to + at, n); });
  });
}

void Cpu::log_softmax(const Tensor& x, const Tensor& y) {
  visit_float(y.dtype(), [&]<class T>() {
    const T* from = values<T>(x);
    T* to = values<T>(y);
    for_rows(y, [=](int64_t at, int64_t n) { log_softmax_row(from + at, to + at, n); });
  });
}

// dx = y * (dy - sum(y * dy))
void Cpu::softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  visit_float(dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T *out = values<T>(y), *up = values<T>(dy);
    T* to = values<T>(dx);
    for_rows(dx, [=](int64_t at, int64_t n) {
      const T *p = out + at, *g = up + at;
      T* d = to + at;
      A dot = sum_of<A>(n, [=](int64_t i) { return load(p[i]) * load(g[i]); });
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) d[i] = convert<T>(load(p[i]) * (load(g[i]) - dot));
    });
  });
}

// dx = dy - exp(y) * sum(dy)
void Cpu::log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  visit_float(dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T *out = values<T>(y), *up = values<T>(dy);
    T* to = values<T>(dx);
    for_rows(dx, [=](int64_t at, int64_t n) {
      const T *l = out + at, *g = up + at;
      T* d = to + at;
      A sum = sum_of<A>(n, [=](int64_t i) { return load(g[i]); });
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) d[i] = convert<T>(load(g[i]) - fn::exp(load(l[i])) * sum);
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
