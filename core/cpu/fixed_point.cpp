#include "triax/core/numbers/fixed_point.h"

#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/scratch.h"
#include "triax/core/shared/convert.h"

// No sum here depends on the instruction level, the number of threads, or where a tensor was cut.
namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t lanes = 16;
constexpr int results = WideSum::words + 1;

/// to [results] += the squares of n elements; those of f32 are exact in f64.
template <class T> void add_squares(const T* x, int64_t n, double* to) {
  double sums[WideSum::words][lanes] = {}, bad[lanes] = {};
  for (int64_t first = 0; first < n; first += lanes) {
    double rest[lanes] = {};
    int64_t count = fn::min(lanes, n - first);
    for (int64_t i = 0; i < count; ++i) {
      double v = double(load(x[first + i])), square = v * v;
      bool fits = square < WideSum::largest;  // so NaN does not
      rest[i] = fits ? square : 0;
      bad[i] += fits ? 0 : 1;
    }
    double unit = WideSum::first_unit;
    for (int w = 0; w < WideSum::words; ++w, unit *= WideSum::next_unit)
#pragma omp simd
      for (int64_t i = 0; i < lanes; ++i) sums[w][i] += WideSum::take(rest[i], unit);
  }
  for (int64_t i = 0; i < lanes; ++i) {
    for (int w = 0; w < WideSum::words; ++w) to[w] += sums[w][i];
    to[WideSum::words] += bad[i];
  }
}

/// to [n] = or += x, rounded.
template <Write w, class T> void add_rounded(const T* x, int64_t n, FixedPoint f, double* to) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) put<w>(to[i], f.round(double(load(x[i]))));
}

}  // namespace

void Cpu::accumulate_fixed(const Tensor& x, const FixedPoint& f, const Tensor& sums, Write write) {
  constexpr int64_t grain = 1 << 14, piece = 1 << 11;  // sums of a piece stay in the first cache
  int64_t n = sums.numel(), terms = n > 0 ? x.numel() / n : 0;
  double* to = values<double>(sums);
  visit_float(x.dtype(), [&]<class T>() {
    visit_write(write, [&]<Write w>() {
      const T* from = values<const T>(x);
      parallel_for(n, grain / fn::max<int64_t>(1, terms) + 1, [=](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; at += piece) {
          int64_t count = fn::min(piece, end - at);
          add_rounded<w>(from + at, count, f, to + at);
          for (int64_t t = 1; t < terms; ++t)
            add_rounded<Write::add>(from + t * n + at, count, f, to + at);
        }
      });
    });
  });
}

void Cpu::squares_fixed(const Tensor& x, const Tensor& out) {
  constexpr int64_t piece = 1 << 14;
  int64_t n = x.numel(), pieces = (n + piece - 1) / piece;
  Scratch<double> scratch(results * pieces);
  double *parts = scratch.data(), *to = values<double>(out);
  visit_float(x.dtype(), [&]<class T>() {
    const T* from = values<const T>(x);
    parallel_each(pieces, 1, [=](int64_t p) {
      double* part = parts + results * p;
      for (int i = 0; i < results; ++i) part[i] = 0;
      add_squares(from + p * piece, fn::min(piece, n - p * piece), part);
    });
  });
  for (int64_t i = 0; i < results * pieces; ++i) to[i % results] += parts[i];
}

}  // namespace triax::host::TRIAX_LEVEL
