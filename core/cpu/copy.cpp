#include "core/cpu/convert.h"
#include "core/cpu/cpu.h"
#include "core/cpu/loops.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t grain = 1 << 14;

// Rows of one operand, columns of the other: in tiles, so that both sides use whole cache lines.
constexpr int64_t tile = 32;

// Converts a run of n elements, `step` apart. The loop over runs is type-erased, so that it is
// compiled once and not for every pair of dtypes.
using Run = void (*)(const char* x, int64_t step_x, char* y, int64_t step_y, int64_t n);

template <class To, class From>
void copy_run(const char* from, int64_t step_x, char* to, int64_t step_y, int64_t n) {
  const From* x = reinterpret_cast<const From*>(from);
  To* y = reinterpret_cast<To*>(to);
  if (step_x == 1 && step_y == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * step_y] = convert<To>(x[i * step_x]);
  }
}

// The dims of a copy, the one that `to` walks in the smallest steps last.
struct Dims {
  int order[Shape::max_rank];
  int rank;
};

Dims by_stride(const Tensor& to) {
  Dims dims{{}, 0};
  for (int d = 0; d < to.rank(); ++d) {
    if (to.size(d) == 1) continue;
    int at = dims.rank++;
    for (; at > 0 && to.strides()[dims.order[at - 1]] < to.strides()[d]; --at)
      dims.order[at] = dims.order[at - 1];
    dims.order[at] = d;
  }
  return dims;
}

// The dim that `from` walks in steps of 1, if that is a transpose worth tiling, else -1.
int transposed_dim(const Tensor& from, const Dims& dims) {
  if (dims.rank < 2 || from.strides()[dims.order[dims.rank - 1]] == 1) return -1;
  for (int k = 0; k + 1 < dims.rank; ++k)
    if (from.strides()[dims.order[k]] == 1 && from.size(dims.order[k]) > 1) return k;
  return -1;
}

struct Side {
  int64_t row, column;  // strides of the two dims of a tile
};

// One tile: read along x's rows into a block on the stack, written along y's.
template <class T>
void copy_tile(const T* x, Side sx, T* y, Side sy, int64_t rows, int64_t columns) {
  T block[tile][tile];
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) block[r][c] = x[r * sx.row + c * sx.column];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) y[r * sy.row + c * sy.column] = block[r][c];
}

template <class T>
void copy_transposed(const Tensor& from, const Tensor& to, const Dims& dims, int unit) {
  const T* x = values<const T>(from);
  T* y = values<T>(to);
  int row = dims.order[unit], column = dims.order[dims.rank - 1];
  int64_t rows = to.size(row), columns = to.size(column);
  Side sx{1, from.strides()[column]}, sy{to.strides()[row], to.strides()[column]};
  int64_t down = (rows + tile - 1) / tile, across = (columns + tile - 1) / tile;
  Loops<2> outer;
  for (int k = 0; k + 1 < dims.rank; ++k)
    if (k != unit)
      outer.push(to.size(dims.order[k]),
                 {from.strides()[dims.order[k]], to.strides()[dims.order[k]]});
  outer.push(down, {tile * sx.row, tile * sy.row});
  outer.push(across, {tile * sx.column, tile * sy.column});
  int64_t tiles = outer.rows() * outer.inner();
  parallel_for(tiles, grain / (tile * tile), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t at[2], run = t / outer.inner(), k = t % outer.inner();
      outer.at(run, at);
      int64_t left = t / across % down * tile, top = t % across * tile;
      copy_tile(x + at[0] + k * outer.inner_stride(0), sx, y + at[1] + k * outer.inner_stride(1),
                sy, fn::min(tile, rows - left), fn::min(tile, columns - top));
    }
  });
}

void copy_in_runs(const Tensor& from, const Tensor& to, const Dims& dims, Run run) {
  Loops<2> loops;
  for (int k = 0; k < dims.rank; ++k)
    loops.push(to.size(dims.order[k]),
               {from.strides()[dims.order[k]], to.strides()[dims.order[k]]});
  if (to.numel() == 0) return;
  const char* x = values<const char>(from);
  char* y = values<char>(to);
  int64_t step_x = loops.inner_stride(0), size_x = int64_t(size_of(from.dtype()));
  int64_t step_y = loops.inner_stride(1), size_y = int64_t(size_of(to.dtype()));
  loops.run([=](const int64_t(&at)[2], int64_t n) {
    run(x + at[0] * size_x, step_x, y + at[1] * size_y, step_y, n);
  });
}

template <class T> void fill_strided(const Tensor& x, double value) {
  T v = convert<T>(value), *first = values<T>(x);
  Loops<1> loops;
  for (int d = 0; d < x.rank(); ++d) loops.push(x.size(d), {x.strides()[d]});
  int64_t step = loops.inner_stride(0);
  loops.run([=](const int64_t(&at)[1], int64_t n) {
    T* to = first + at[0];
    if (step == 1)
      for (int64_t i = 0; i < n; ++i) to[i] = v;
    else
      for (int64_t i = 0; i < n; ++i) to[i * step] = v;
  });
}

}  // namespace

void Cpu::copy(const Tensor& from, const Tensor& to) {
  Dims dims = by_stride(to);
  if (from.dtype() != to.dtype())
    return visit(to.dtype(), [&]<class To>() {
      visit(from.dtype(), [&]<class From>() {
        if constexpr (!__is_same(To, From)) copy_in_runs(from, to, dims, copy_run<To, From>);
      });
    });
  int unit = transposed_dim(from, dims);
  visit_bits(to.dtype(), [&]<class T>() {
    if (unit >= 0) copy_transposed<T>(from, to, dims, unit);
    else copy_in_runs(from, to, dims, copy_run<T, T>);
  });
}

void Cpu::fill(const Tensor& x, double value) {
  visit(x.dtype(), [&]<class T>() { fill_strided<T>(x, value); });
}

void Cpu::accumulate(const Tensor& from, const Tensor& to) {
  visit_float(to.dtype(), [&]<class To>() {
    visit_float(from.dtype(), [&]<class From>() {
      using A = Accumulator<To>;
      const From* x = values<const From>(from);
      To* y = values<To>(to);
      parallel_for(to.numel(), grain, [=](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i)
          y[i] = convert<To>(convert<A>(y[i]) + convert<A>(x[i]));
      });
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
