#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/scratch.h"
#include "triax/core/shared/convert.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// sums [2, channels] += {x, x z} of some rows. Four at a time: the sums, which are larger than
/// what is added, are read and written less often.
template <class T>
void add_rows(const T* x, const T* z, int64_t rows, int64_t channels, double* sums) {
  double *plain = sums, *products = sums + channels;
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const T *p = x + r * channels, *q = z + r * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      double a = load(p[c]), b = load(p[channels + c]);
      double d = load(p[2 * channels + c]), e = load(p[3 * channels + c]);
      plain[c] += (a + b) + (d + e);
      products[c] += (a * load(q[c]) + b * load(q[channels + c])) +
                     (d * load(q[2 * channels + c]) + e * load(q[3 * channels + c]));
    }
  }
  for (; r < rows; ++r) {
    const T *p = x + r * channels, *q = z + r * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      double a = load(p[c]);
      plain[c] += a;
      products[c] += a * load(q[c]);
    }
  }
}

/// Sums pieces of rows, as many for any number of threads, and joins them in order.
template <class T>
void sum_channels(const T* x, const T* z, int64_t rows, int64_t channels, double* sums) {
  int64_t pieces = fn::min<int64_t>(64, rows * channels >> 13), n = 2 * channels;
  pieces = fn::max<int64_t>(1, fn::min(pieces, rows));
  Scratch<double> scratch(pieces * n);
  double* parts = scratch.data();
  parallel_each(pieces, 1, [=](int64_t p) {
    int64_t first = rows * p / pieces, last = rows * (p + 1) / pieces;
    for (int64_t i = 0; i < n; ++i) parts[p * n + i] = 0;
    add_rows(x + first * channels, z + first * channels, last - first, channels, parts + p * n);
  });
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t p = 0; p < pieces; ++p) sum += parts[p * n + i];
    sums[i] = sum;
  }
}

template <class T>
void affine_rows(const T* x, const T* z, int64_t rows, int64_t channels, const Accumulator<T>* k,
                 T* y) {
  using A = Accumulator<T>;
  const A *a = k, *b = k + channels, *m = k + 2 * channels, *c = k + 3 * channels;
  for (int64_t r = 0; r < rows; ++r, z += channels, y += channels) {
    if (!x) {
#pragma omp simd
      for (int64_t i = 0; i < channels; ++i) y[i] = convert<T>(b[i] * (load(z[i]) - m[i]) + c[i]);
      continue;
    }
#pragma omp simd
    for (int64_t i = 0; i < channels; ++i) {
      A v = b[i] * (load(z[i]) - m[i]) + c[i];
      y[i] = convert<T>(a[i] * load(x[i]) + v);
    }
    x += channels;
  }
}

}  // namespace

void Cpu::channel_sums(const Tensor& x, const Tensor& z, const Tensor& sums) {
  int64_t rows = x.size(0), channels = x.size(1);
  visit_float(x.dtype(), [&]<class T>() {
    sum_channels(values<const T>(x), values<const T>(z), rows, channels, values<double>(sums));
  });
}

void Cpu::channel_affine(const Tensor& x, const Tensor& z, const Tensor& k, const Tensor& y) {
  int64_t rows = z.size(0), channels = z.size(1);
  visit_float(z.dtype(), [&]<class T>() {
    const T *from = values<const T>(x), *other = values<const T>(z);
    const auto* factors = values<const Accumulator<T>>(k);
    T* to = values<T>(y);
    parallel_for(rows, (1 << 13) / (channels + 1) + 1, [=](int64_t begin, int64_t end) {
      int64_t at = begin * channels;
      affine_rows(from ? from + at : nullptr, other + at, end - begin, channels, factors, to + at);
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
