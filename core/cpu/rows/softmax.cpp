#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/rows/row.h"
#include "triax/core/shared/convert.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

// f(to row, from rows.., width) over the rows of tensors of one shape, in parallel.
template <class F, class... In> void for_rows(F f, const Tensor& to, const In&... from) {
  int64_t width = to.rank() ? to.size(-1) : 1, rows = width ? to.numel() / width : 0;
  visit_float(to.dtype(), [&]<class T>() {
    [=](T* y, const auto*... x) {
      parallel_each(rows, (1 << 13) / (width + 1) + 1,
                    [=](int64_t r) { f(y + r * width, x + r * width..., width); });
    }(values<T>(to), values<T>(from)...);
  });
}

template <class T> void softmax_row(T* y, const T* x, int64_t n) {
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

template <class T> void log_softmax_row(T* y, const T* x, int64_t n) {
  using A = Accumulator<T>;
  A largest = max_of<A>(n, [=](int64_t i) { return load(x[i]); });
  A sum = sum_of<A>(n, [=](int64_t i) { return fn::exp(load(x[i]) - largest); });
  A log_sum = fn::log(sum);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = convert<T>((load(x[i]) - largest) - log_sum);
}

// dx = y * (dy - sum(y * dy))
template <class T> void softmax_backward_row(T* dx, const T* y, const T* dy, int64_t n) {
  using A = Accumulator<T>;
  A dot = sum_of<A>(n, [=](int64_t i) { return load(y[i]) * load(dy[i]); });
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = convert<T>(load(y[i]) * (load(dy[i]) - dot));
}

// dx = dy - exp(y) * sum(dy)
template <class T> void log_softmax_backward_row(T* dx, const T* y, const T* dy, int64_t n) {
  using A = Accumulator<T>;
  A sum = sum_of<A>(n, [=](int64_t i) { return load(dy[i]); });
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = convert<T>(load(dy[i]) - fn::exp(load(y[i])) * sum);
}

}  // namespace

void Cpu::softmax(const Tensor& x, const Tensor& y) {
  for_rows([](auto... row) { softmax_row(row...); }, y, x);
}
void Cpu::log_softmax(const Tensor& x, const Tensor& y) {
  for_rows([](auto... row) { log_softmax_row(row...); }, y, x);
}
void Cpu::softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  for_rows([](auto... row) { softmax_backward_row(row...); }, dx, y, dy);
}
void Cpu::log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  for_rows([](auto... row) { log_softmax_backward_row(row...); }, dx, y, dy);
}

}  // namespace triax::host::TRIAX_LEVEL
