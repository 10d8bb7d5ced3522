#pragma once
#include "triax/core/cpu/products/gemm.h"

// Backend::matmul as matrices of a batch, and the cut of one among threads.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// True if some of backward's extras are done before or after the product: all but gelu's slope
/// alone, and row_sums of bf16 on tiles (tiled_matmul.cpp).
inline __attribute__((always_inline)) bool takes_steps(const Matmul& p) {
  return p.row_sums.defined() || (p.gelu_of.defined() && p.write == Write::add);
}

/// One matrix product of a batch: c [m, n] with strides, what is added to it, and gelu.
template <class T, class C> struct Product {
  Operand<T> a, b;
  int64_t m, n, k;
  C* c;
  int64_t c_row, c_col;
  Write write;
  const T* bias;  // or null; element (i, j) at i * bias_row + j * bias_col
  int64_t bias_row, bias_col;
  T* before;         // or null
  const T* gelu_of;  // or null; laid out as `before`
  int64_t before_row, before_col;
  float* row_sums;             // or null; sums of a's rows
  const FixedPoint* rounding;  // if c is f64 in fixed point

  /// Returns this product as c^T = b^T a^T.
  Product transposed() const {
    Product t = *this;
    t.a = b, t.b = a, t.m = n, t.n = m;
    t.c_row = c_col, t.c_col = c_row;
    t.bias_row = bias_col, t.bias_col = bias_row;
    t.before_row = before_col, t.before_col = before_row;
    return t;
  }
  /// True if something is done to sums that are complete.
  bool goes_on() const { return bias || before || gelu_of; }
};

/// Part of a product: rows [row, row + rows), columns [col, col + cols).
struct Block {
  int64_t row, col, rows, cols;
};

/// Returns matrix `i` of the batch.
template <class T, class C> Product<T, C> product(const Matmul& p, int64_t i) {
  int r = p.c.rank();
  int64_t a = 0, b = 0, c = 0;
  for (int d = r - 3; d >= 0; --d) {
    int64_t at = i % p.c.size(d);
    i /= p.c.size(d);
    a += at * p.a.strides()[d];
    b += at * p.b.strides()[d];
    c += at * p.c.strides()[d];
  }
  Product<T, C> x{};
  x.m = p.c.size(-2), x.n = p.c.size(-1), x.k = p.a.size(-1);
  x.a = {static_cast<const T*>(p.a.data()) + a, p.a.strides()[r - 2], p.a.strides()[r - 1]};
  x.b = {static_cast<const T*>(p.b.data()) + b, p.b.strides()[r - 1], p.b.strides()[r - 2]};
  x.c = static_cast<C*>(p.c.data()) + c;
  x.c_row = p.c.strides()[r - 2], x.c_col = p.c.strides()[r - 1];
  x.write = p.write;
  x.rounding = p.rounding;
  if (p.row_sums.defined()) x.row_sums = static_cast<float*>(p.row_sums.data());
  if (p.bias.defined()) {
    x.bias = static_cast<const T*>(p.bias.data());
    x.bias_col = p.bias.strides()[0];
  }
  const Tensor& beside = p.before.defined() ? p.before : p.gelu_of;
  if (beside.defined()) {
    auto* at = static_cast<T*>(beside.data());
    if (p.before.defined()) x.before = at;
    else x.gelu_of = at;
    x.before_row = beside.strides()[0], x.before_col = beside.strides()[1];
  }
  return x.c_row == 1 && x.c_col != 1 ? x.transposed() : x;
}

/// A cut of c among threads: pieces of rows x columns, whole tiles each.
struct Cut {
  int64_t rows = 1, cols = 1;
};

/// The cost of a tile of c per unit of depth, and of packing a tile's rows of a or columns of b.
struct Costs {
  int64_t rows, cols, tile, pack_rows, pack_cols;
};

/// Returns the cut that costs the slowest thread least.
inline __attribute__((always_inline)) Cut cut(int64_t m, int64_t n, int64_t threads,
                                              const Costs& k) {
  int64_t high = (m + k.rows - 1) / k.rows, wide = (n + k.cols - 1) / k.cols, best = INT64_MAX;
  Cut chosen;
  for (int64_t r = 1; r <= threads; ++r) {
    int64_t c = fn::min(threads / r, wide), h = (high + r - 1) / r, w = (wide + c - 1) / c;
    int64_t cost = h * w * k.tile + h * k.pack_rows + w * k.pack_cols;
    if (cost >= best) continue;
    best = cost;
    chosen = {r, c};
  }
  return chosen;
}

/// Piece i of `count` of the tiles of a length.
struct Span {
  int64_t begin, end;
  Span(int64_t length, int64_t tile, int64_t count, int64_t i) {
    int64_t tiles = (length + tile - 1) / tile;
    begin = tiles * i / count * tile;
    end = tiles * (i + 1) / count * tile;
    if (end > length) end = length;
  }
};

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
