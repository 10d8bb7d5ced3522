#include "triax/core/cpu/cpu.h"
#include "triax/core/cpu/loops.h"
#include "triax/core/shared/convert.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int64_t grain = 1 << 14;

// The side of a tile. One operand walks rows, the other columns: in tiles both use whole lines.
constexpr int64_t tile = 32;

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

// Copies through tiles; `unit` is the dim in which `from` has neighbours.
template <class T> void copy_transposed(const T* x, T* y, const Strides<2>& s, int unit) {
  int last = s.rank - 1;
  int64_t rows = s.size[unit], columns = s.size[last];
  auto side = [&](int k) { return Side{s.stride[unit][k], s.stride[last][k]}; };
  Side sy = side(0), sx = side(1);
  int64_t down = (rows + tile - 1) / tile, across = (columns + tile - 1) / tile;
  Strides<2> others;
  for (int d = 0; d < last; ++d)
    if (d != unit) others.push(s.size[d], s.stride[d]);
  parallel_each(others.numel * down * across, grain / (tile * tile), [&](int64_t t) {
    int64_t at[2], r = t / across % down * tile, c = t % across * tile;
    others.at(t / across / down, at);
    copy_tile(x + at[1] + r * sx.row + c * sx.column, sx, y + at[0] + r * sy.row + c * sy.column,
              sy, fn::min(tile, rows - r), fn::min(tile, columns - c));
  });
}

/// Converts n neighbours.
using Convert = void (*)(const char* from, char* to, int64_t n);

template <class To, class From> void convert_run(const char* from, char* to, int64_t n) {
  const From* x = reinterpret_cast<const From*>(from);
  To* y = reinterpret_cast<To*>(to);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
}

// Copies in runs; without `convert` the dtypes are the same.
void copy_in_runs(const Tensor& from, const Tensor& to, const Strides<2>& s, Convert convert) {
  DType dtype_x = from.dtype(), dtype_y = to.dtype();
  char *x = values<char>(from), *y = values<char>(to);
  int64_t size_x = int64_t(size_of(dtype_x)), size_y = int64_t(size_of(dtype_y));
  int64_t step_x = s.step(1), step_y = s.step(0);
  for_runs(s, [=](const int64_t(&at)[2], int64_t n) {
    Run in{x + at[1] * size_x, step_x}, out{y + at[0] * size_y, step_y};
    if (!convert) return copy_run(dtype_x, in, out, n);
    if (step_x == 1 && step_y == 1) return convert(in.at, out.at, n);
    Block read, converted;
    for (int64_t i = 0; i < n; i += block) {
      int64_t count = fn::min(block, n - i);
      copy_run(dtype_x, {in.at + i * step_x * size_x, step_x}, {read.at, 1}, count);
      convert(read.at, converted.at, count);
      copy_run(dtype_y, {converted.at, 1}, {out.at + i * step_y * size_y, step_y}, count);
    }
  });
}

}  // namespace

void Cpu::copy(const Tensor& from, const Tensor& to) {
  Strides<2> s = copy_strides(to, from);
  if (from.dtype() != to.dtype())
    return visit(to.dtype(), [&]<class To>() {
      visit(from.dtype(), [&]<class From>() {
        if constexpr (!__is_same(To, From)) copy_in_runs(from, to, s, convert_run<To, From>);
      });
    });
  int unit = transposed_dim(s, 2);
  if (unit < 0) return copy_in_runs(from, to, s, nullptr);
  visit_bits(to.dtype(),
             [&]<class T>() { copy_transposed(values<const T>(from), values<T>(to), s, unit); });
}

void Cpu::fill(const Tensor& x, double value) {
  Block one;
  visit(x.dtype(), [&]<class T>() {
    T element = convert<T>(value);
    __builtin_memcpy(one.at, &element, sizeof(element));
  });
  DType dtype = x.dtype();
  char* to = values<char>(x);
  Strides<1> s = strides_of(x);
  for_runs(s, [&](const int64_t(&at)[1], int64_t n) {
    copy_run(dtype, {one.at, 0}, {to + at[0] * int64_t(size_of(dtype)), s.step(0)}, n);
  });
}

void Cpu::accumulate(const Tensor& from, const Tensor& to) {
  visit_float(to.dtype(), [&]<class To>() {
    visit_float(from.dtype(), [&]<class From>() {
      const From* x = values<const From>(from);
      To* y = values<To>(to);
      parallel_for(to.numel(), grain, [=](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) put<Write::add>(y[i], convert<Accumulator<To>>(x[i]));
      });
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
