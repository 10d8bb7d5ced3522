#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/rows/row.h"
#include "triax/core/cpu/scratch.h"
#include "triax/core/shared/convert.h"
#include "triax/core/shared/reduction.h"

// Sums are cut into pieces that depend on shapes alone and combined in order: the bits of a result
// do not depend on the number of threads.
namespace triax::host::TRIAX_LEVEL {
namespace {

struct Sum {
  template <class A> static constexpr A start() { return 0; }
  template <class A> TRIAX_HD static A join(A a, A b) { return a + b; }
  template <class A, class F> TRIAX_HD static A row(int64_t n, F term) {
    return sum_of<A>(n, term);
  }
};

/// The larger value, or NaN if either is: it wins, as it does in a sum.
struct Max {
  template <class A> static constexpr A start() { return A(-__builtin_inf()); }
  template <class A> TRIAX_HD static A join(A a, A b) {
    return fn::select((b > a) | (b != b), b, a);
  }
  template <class A, class F> TRIAX_HD static A row(int64_t n, F term) {
    A m = max_of<A>(n, term);
    int nan = 0;
#pragma omp simd reduction(| : nan)
    for (int64_t i = 0; i < n; ++i) nan |= term(i) != term(i);
    return nan ? A(__builtin_nan("")) : m;
  }
};

template <class Op, class T, class A> void row_piece(const T* x, int64_t n, A* to) {
  *to = Op::template row<A>(n, [=](int64_t i) { return convert<A>(x[i]); });
}

template <class Op, class T, class A>
void column_piece(const T* x, int64_t rows, int64_t inner, A* to) {
  for (int64_t i = 0; i < inner; ++i) to[i] = Op::template start<A>();
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = x + r * inner;
#pragma omp simd
    for (int64_t i = 0; i < inner; ++i) to[i] = Op::join(to[i], convert<A>(from[i]));
  }
}

template <class Op, class T, class U, Write write> void reduce(const T* x, const Extent& e, U* y) {
  using A = Accumulator<T>;
  int64_t pieces = fn::min<int64_t>(64, e.reduced * e.inner >> 13);
  pieces = fn::max<int64_t>(1, fn::min(pieces, e.reduced));
  Scratch<A> scratch(e.outer * pieces * e.inner);
  A* parts = scratch.data();
  int64_t work = e.reduced * e.inner / pieces;
  parallel_each(e.outer * pieces, (1 << 13) / (work + 1) + 1, [&](int64_t t) {
    int64_t o = t / pieces, p = t % pieces;
    int64_t first = e.reduced * p / pieces, last = e.reduced * (p + 1) / pieces;
    const T* from = x + (o * e.reduced + first) * e.inner;
    if (e.inner == 1) row_piece<Op>(from, last - first, parts + t);
    else column_piece<Op>(from, last - first, e.inner, parts + t * e.inner);
  });
  for (int64_t o = 0; o < e.outer; ++o)
    for (int64_t i = 0; i < e.inner; ++i) {
      const A* part = parts + o * pieces * e.inner + i;
      A total = part[0];
      for (int64_t p = 1; p < pieces; ++p) total = Op::join(total, part[p * e.inner]);
      put<write>(y[o * e.inner + i], total);
    }
}

// Reduces the innermost group first, then the groups in front of it from the partial result.
// `kept`: elements of y behind the dims still to look at.
template <class Op, class T, class U, Write write>
void reduce_dims(const Tensor& x, const Tensor& y, const T* from, int rank, int64_t kept) {
  using A = Accumulator<T>;
  ReductionCut c = innermost(x, y, rank);
  c.extent.inner *= kept;
  U* to = values<U>(y);
  if (!c.reduces) return reduce<Op, T, U, write>(from, c.extent, to);
  Scratch<A> partial(c.extent.outer * c.extent.inner);
  reduce<Op, T, A, Write::set>(from, c.extent, partial.data());
  reduce_dims<Op, A, U, write>(x, y, partial.data(), c.front, c.extent.inner);
}

template <class T> void squares_of(const T* x, int64_t n, double* out) {
  constexpr int64_t piece = 1 << 14;
  int64_t pieces = (n + piece - 1) / piece;
  Scratch<double> scratch(2 * pieces);
  double* parts = scratch.data();
  parallel_each(pieces, 1, [=](int64_t p) {
    const T* from = x + p * piece;
    int64_t count = fn::min(piece, n - p * piece);
    double sum = sum_of<double>(count, [=](int64_t i) {
      double v = double(load(from[i]));
      return v * v;
    });
    // In f64 finite f32 squares sum to something finite: so this is all but always skipped.
    int64_t bad = 0;
    if (!(sum - sum == 0))
      for (int64_t i = 0; i < count; ++i) bad += !(load(from[i]) - load(from[i]) == 0);
    parts[2 * p] = sum;
    parts[2 * p + 1] = double(bad);
  });
  for (int64_t p = 0; p < pieces; ++p) {
    out[0] += parts[2 * p];
    out[1] += parts[2 * p + 1];
  }
}

}  // namespace

void Cpu::sum(const Tensor& x, const Tensor& y, Write write) {
  visit_float(x.dtype(), [&]<class T>() {
    visit_sum<T>(y.dtype(), [&]<class U>() {
      visit_write(write, [&]<Write w>() {
        reduce_dims<Sum, T, U, w>(x, y, values<const T>(x), x.rank(), 1);
      });
    });
  });
}

void Cpu::max(const Tensor& x, const Tensor& y) {
  visit_float(x.dtype(), [&]<class T>() {
    reduce_dims<Max, T, T, Write::set>(x, y, values<const T>(x), x.rank(), 1);
  });
}

void Cpu::squares(const Tensor& x, const Tensor& out) {
  visit_float(x.dtype(),
              [&]<class T>() { squares_of(values<const T>(x), x.numel(), values<double>(out)); });
}

}  // namespace triax::host::TRIAX_LEVEL
