#include "core/fixed_point.h"

#include "core/convert.h"
#include "core/cpu/cpu.h"
#include "core/cpu/parallel.h"
#include "core/cpu/scratch.h"

// No sum here depends on the instruction level, the number of threads, or where a tensor was cut.
namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t block = 16;  // squares are added in such blocks first, in one order
constexpr int results = WideSum::words + 1;

/// A tree over the lanes of v.
double sum_of_block(const double (&v)[block]) {
  double sums[block];
  for (int i = 0; i < block; ++i) sums[i] = v[i];
  for (int half = block / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

/// to [results] += the squares of n elements. Those of f32 are exact in f64.
template <class T> void add_squares(const T* x, int64_t n, double* to) {
  for (int64_t b = 0; b < n; b += block) {
    int64_t count = fn::min(block, n - b);
    double squares[block] = {}, bad = 0;
    for (int64_t i = 0; i < count; ++i) {
      double v = double(load(x[b + i]));
      squares[i] = v * v;
    }
    double sum = sum_of_block(squares);
    if (__builtin_fabs(sum) < 0x1p52) {
      WideSum::add(sum, to);
      continue;
    }
    for (int64_t i = 0; i < count; ++i) bad += !(squares[i] - squares[i] == 0);
    to[WideSum::words] += bad > 0 ? bad : 1;
  }
}

}  // namespace

void Cpu::accumulate_fixed(const Tensor& x, const FixedPoint& f, const Tensor& sums, Write write) {
  constexpr int64_t grain = 1 << 14;
  double* to = values<double>(sums);
  visit_float(x.dtype(), [&]<class T>() {
    visit_write(write, [&]<Write w>() {
      const T* from = values<const T>(x);
      parallel_for(x.numel(), grain, [=](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) put<w>(to[i], f.round(double(load(from[i]))));
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
    parallel_for(pieces, 1, [=](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        double* part = parts + results * p;
        for (int i = 0; i < results; ++i) part[i] = 0;
        add_squares(from + p * piece, fn::min(piece, n - p * piece), part);
      }
    });
  });
  for (int64_t i = 0; i < results * pieces; ++i) to[i % results] += parts[i];
}

}  // namespace triax::host::TRIAX_LEVEL
