#include "triax/core/cuda/kernels/rows/row.h"
#include "triax/core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {

enum class SoftmaxOf { probability, logarithm };

/// y = e^(x - largest) / sum over each row of [rows, width], or its logarithm.
template <class T, class Layout> struct SoftmaxForward {
  static constexpr int threads = Layout::threads;
  using A = Accumulator<T>;
  using In = Row<T, Layout, 1>;
  using Shared = Partials<A>;
  const T* x;
  T* y;
  int64_t rows, width;
  SoftmaxOf of;

  template <class F> TRIAX_HD void write(const In& row, T* to, F f) const {
    row.each([&](int64_t i, auto& in) {
      typename In::Part out;
#pragma unroll
      for (int k = 0; k < In::size; ++k) out.at[k] = convert<T>(f(load(in[0].at[k])));
      write_chunk(to + i, out);
    });
  }
  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    if (Layout::row(t) >= rows) return;  // a whole warp, and then none of its block waits
    In row(t, width, x);
    A largest = Max::identity<A>(), sum = 0;
    row.each([&](int64_t, auto& in) {
#pragma unroll
      for (int k = 0; k < In::size; ++k) largest = larger(load(in[0].at[k]), largest);
    });
    largest = Layout::reduce(t, largest, Max{}, shared);
    row.each([&](int64_t, auto& in) {
#pragma unroll
      for (int k = 0; k < In::size; ++k) sum += fast_exp(load(in[0].at[k]) - largest);
    });
    sum = Layout::reduce(t, sum, Sum{}, shared);
    T* to = y + Layout::row(t) * width;
    if (of == SoftmaxOf::logarithm) {
      A log_sum = fn::log(sum);
      write(row, to, [=](A v) { return (v - largest) - log_sum; });
    } else {
      A scale = A(1) / sum;
      write(row, to, [=](A v) { return fast_exp(v - largest) * scale; });
    }
  }
};

/// dx = y * (dy - sum(y * dy)); of the logarithm dx = dy - exp(y) * sum(dy).
template <class T, class Layout> struct SoftmaxBackward {
  static constexpr int threads = Layout::threads;
  using A = Accumulator<T>;
  using In = Row<T, Layout, 2>;
  using Shared = Partials<A>;
  const T *y, *dy;
  T* dx;
  int64_t rows, width;
  SoftmaxOf of;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    if (Layout::row(t) >= rows) return;  // a whole warp, and then none of its block waits
    In row(t, width, y, dy);
    bool logarithm = of == SoftmaxOf::logarithm;
    A sum = 0;
    row.each([&](int64_t, auto& in) {
#pragma unroll
      for (int k = 0; k < In::size; ++k)
        sum += (logarithm ? A(1) : load(in[0].at[k])) * load(in[1].at[k]);
    });
    sum = Layout::reduce(t, sum, Sum{}, shared);
    T* to = dx + Layout::row(t) * width;
    row.each([&](int64_t i, auto& in) {
      typename In::Part out;
#pragma unroll
      for (int k = 0; k < In::size; ++k) {
        A p = load(in[0].at[k]), g = load(in[1].at[k]);
        out.at[k] = convert<T>(logarithm ? g - fast_exp(p) * sum : p * (g - sum));
      }
      write_chunk(to + i, out);
    });
  }
};

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
