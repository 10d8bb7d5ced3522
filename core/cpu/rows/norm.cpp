#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/rows/row.h"
#include "triax/core/cpu/scratch.h"
#include "triax/core/shared/convert.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

// The tensors of a Norm as pointers; mean and beta may be null.
template <class T> struct Rows {
  using A = Accumulator<T>;
  const T *x, *gamma, *beta;
  A *mean, *rstd;
  int64_t rows, width;

  explicit Rows(const Norm& n)
      : x(values<T>(n.x)),
        gamma(values<T>(n.gamma)),
        beta(values<T>(n.beta)),
        mean(values<A>(n.mean)),
        rstd(values<A>(n.rstd)),
        rows(n.rstd.numel()),
        width(n.x.size(-1)) {}
  int64_t grain() const { return (1 << 13) / (width + 1) + 1; }
  A mean_at(int64_t r) const { return mean ? mean[r] : A(0); }
};

// Two passes over the row, which is in the cache for the second: E[x^2] - E[x]^2 would cancel.
template <class T> void norm_row(const Rows<T>& n, int64_t r, double eps, T* y) {
  using A = Accumulator<T>;
  int64_t width = n.width;
  const T *x = n.x + r * width, *gamma = n.gamma, *beta = n.beta;
  A mean = 0;
  if (n.mean) {
    mean = sum_of<A>(width, [=](int64_t i) { return load(x[i]); }) / A(width);
    n.mean[r] = mean;
  }
  A squares = sum_of<A>(width, [=](int64_t i) {
    A d = load(x[i]) - mean;
    return d * d;
  });
  A rstd = A(1) / fn::sqrt(squares / A(width) + A(eps));
  n.rstd[r] = rstd;
  if (beta) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i)
      y[i] = convert<T>((load(x[i]) - mean) * rstd * load(gamma[i]) + load(beta[i]));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i)
      y[i] = convert<T>((load(x[i]) - mean) * rstd * load(gamma[i]));
  }
}

// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = gamma * dy; RMS norm lacks mean(g).
template <class T, Write write>
void norm_backward_row(const Rows<T>& n, int64_t r, const T* dy, T* dx) {
  using A = Accumulator<T>;
  int64_t width = n.width;
  const T *x = n.x + r * width, *gamma = n.gamma;
  A mean = n.mean_at(r), rstd = n.rstd[r], sum, dot;
  auto term = [=](int64_t i, A & s, A & d) __attribute__((always_inline)) {
    A g = load(gamma[i]) * load(dy[i]);
    s += g;
    d += g * (load(x[i]) - mean);
  };
  sums_of(width, term, sum, dot);
  A a = n.mean ? sum / A(width) : A(0), b = dot * rstd * rstd / A(width);
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    A g = load(gamma[i]) * load(dy[i]);
    put<write>(dx[i], rstd * (g - a - (load(x[i]) - mean) * b));
  }
}

// dgamma and dbeta of rows [begin, end) into `sums` [2, width].
template <class T>
void add_rows(const Rows<T>& n, const T* dy, int64_t begin, int64_t end, Accumulator<T>* sums) {
  using A = Accumulator<T>;
  int64_t width = n.width;
  A *dgamma = sums, *dbeta = sums + width;
  for (int64_t i = 0; i < 2 * width; ++i) sums[i] = 0;
  for (int64_t r = begin; r < end; ++r) {
    const T *x = n.x + r * width, *g = dy + r * width;
    A mean = n.mean_at(r), rstd = n.rstd[r];
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      dgamma[i] += load(g[i]) * ((load(x[i]) - mean) * rstd);
      dbeta[i] += load(g[i]);
    }
  }
}

template <class U, Write write, class A>
void combine(const A* sums, int64_t pieces, int64_t step, U* to, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    A sum = 0;
    for (int64_t p = 0; p < pieces; ++p) sum += sums[p * step + i];
    put<write>(to[i], sum);
  }
}

// Pieces of rows, as many for any number of threads, summed in their order.
template <class T, class U, Write write>
void backward_weights(const Rows<T>& n, const T* dy, U* dgamma, U* dbeta) {
  using A = Accumulator<T>;
  int64_t width = n.width, pieces = fn::min<int64_t>(16, n.rows * width >> 13);
  pieces = fn::max<int64_t>(1, fn::min(pieces, n.rows));
  Scratch<A> scratch(pieces * 2 * width);
  A* sums = scratch.data();
  parallel_each(pieces, 1, [&](int64_t p) {
    add_rows(n, dy, n.rows * p / pieces, n.rows * (p + 1) / pieces, sums + p * 2 * width);
  });
  combine<U, write>(sums, pieces, 2 * width, dgamma, width);
  if (dbeta) combine<U, write>(sums + width, pieces, 2 * width, dbeta, width);
}

}  // namespace

void Cpu::norm(const Norm& n, const Tensor& y) {
  visit_float(y.dtype(), [&]<class T>() {
    Rows<T> rows(n);
    T* to = values<T>(y);
    parallel_each(rows.rows, rows.grain(),
                  [&](int64_t r) { norm_row(rows, r, n.eps, to + r * rows.width); });
  });
}

Tensor Cpu::norm_backward(const Norm& n, const Tensor& dy, const Tensor& dx, Write write) {
  visit_float(dx.dtype(), [&]<class T>() {
    Rows<T> rows(n);
    const T* up = values<T>(dy);
    T* to = values<T>(dx);
    visit_write(write, [&]<Write w>() {
      parallel_each(rows.rows, rows.grain(), [&](int64_t r) {
        norm_backward_row<T, w>(rows, r, up + r * rows.width, to + r * rows.width);
      });
    });
  });
  return {};
}

void Cpu::norm_backward_weights(const Norm& n, const Tensor& dy, const Tensor& dgamma,
                                const Tensor& dbeta, Write write) {
  visit_float(dy.dtype(), [&]<class T>() {
    Rows<T> rows(n);
    visit_sum<T>(dgamma.dtype(), [&]<class U>() {
      visit_write(write, [&]<Write w>() {
        backward_weights<T, U, w>(rows, values<T>(dy), values<U>(dgamma), values<U>(dbeta));
      });
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
