#pragma once
#include "triax/core/cuda/kernels/rows/row.h"
#include "triax/core/shared/reduction.h"

// Reductions are cut into pieces that depend on shapes alone; each piece is reduced by one block
// or, of few or short columns, one thread per column, and the pieces are joined in order. Where the
// data lie modulo 16 bytes decides which thread of a block takes which element of a row.

namespace triax::cuda::TRIAX_TARGET {

/// The larger value, or NaN if either is: it wins, as it does in a sum.
struct MaxOrNan {
  template <class A> TRIAX_HD static A identity() { return A(-__builtin_inf()); }
  template <class A> TRIAX_HD A operator()(A a, A b) const { return b > a || b != b ? b : a; }
};

/// An extent in `pieces` of the reduced dim.
struct Pieces : Extent {
  int64_t pieces;

  TRIAX_HD int64_t begin(int64_t piece) const { return reduced * piece / pieces; }
};

/// parts[outer, pieces] of x [outer, reduced]; a block each.
template <class Op, class T> struct ReduceRows {
  static constexpr int threads = 256;
  using A = Accumulator<T>;
  using Shared = Partials<A>;
  const T* x;
  A* parts;
  Pieces e;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    int64_t outer = t.block.x / e.pieces, piece = t.block.x - outer * e.pieces;
    const T *row = x + outer * e.reduced, *end = row + e.begin(piece + 1);
    A value = Op::template identity<A>();
    const T* from = row + e.begin(piece);
    constexpr int size = 16 / int(sizeof(T));
    if (packs_fit(from))
      for (; from + size * t.threads <= end; from += size * t.threads) {
        Pack<T> p = load_pack<size>(from + size * t.id);
#pragma unroll
        for (int k = 0; k < size; ++k) value = Op{}(value, load(p.at[k]));
      }
    for (from += t.id; from < end; from += t.threads) value = Op{}(value, load(*from));
    value = reduce_block(t, value, Op{}, shared);
    if (t.id == 0) parts[t.block.x] = value;
  }
};

/// parts[outer, pieces, inner]; a thread for each.
template <class Op, class T> struct ReduceColumns {
  static constexpr int threads = 128;
  using A = Accumulator<T>;
  const T* x;
  A* parts;
  Pieces e;

  TRIAX_HD void operator()(const Thread& t) const {
    int64_t i = t.global();
    if (i >= e.outer * e.pieces * e.inner) return;
    int64_t row = i / e.inner, column = i - row * e.inner;
    int64_t outer = row / e.pieces, piece = row - outer * e.pieces;
    const T* from = x + outer * e.reduced * e.inner + column;
    A value = Op::template identity<A>();
    for (int64_t r = e.begin(piece); r < e.begin(piece + 1); ++r)
      value = Op{}(value, load(from[r * e.inner]));
    parts[i] = value;
  }
};

/// ReduceColumns for many and long columns: a block for each piece of 32 threads' columns; its
/// warps take rows in turn and are joined in order.
template <class Op, class T, int size> struct ReduceTallColumns {
  static constexpr int threads = 256, warps = threads / 32, columns = 32 * size;
  using A = Accumulator<T>;
  using Shared = OfWarps<A, size>;
  const T* x;
  A* parts;
  Pieces e;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    int64_t groups = (e.inner + columns - 1) / columns, row = t.block.x / groups;
    int64_t first = (t.block.x - row * groups) * columns, column = first + t.lane() * size;
    int64_t outer = row / e.pieces, piece = row - outer * e.pieces;
    const T* from = x + outer * e.reduced * e.inner + column;
    A value[size];
#pragma unroll
    for (int k = 0; k < size; ++k) value[k] = Op::template identity<A>();
    if (column < e.inner)
#pragma unroll 4
      for (int64_t r = e.begin(piece) + t.warp(); r < e.begin(piece + 1); r += warps) {
        auto in = read_chunk<size>(from + r * e.inner);
#pragma unroll
        for (int k = 0; k < size; ++k) value[k] = Op{}(value[k], load(in.at[k]));
      }
    join_warps(t, value, Op{}, shared, [&](int c, A joined) {
      if (first + c < e.inner) parts[row * e.inner + first + c] = joined;
    });
  }
};

/// y[outer, inner] = parts joined in order, or +=.
template <class Op, class A, class U, Write write> struct JoinPieces {
  static constexpr int threads = 128;
  const A* parts;
  U* y;
  Pieces e;

  TRIAX_HD void operator()(const Thread& t) const {
    int64_t i = t.global();
    if (i >= e.outer * e.inner) return;
    int64_t outer = i / e.inner, column = i - outer * e.inner;
    const A* part = parts + outer * e.pieces * e.inner + column;
    A value = Op::template identity<A>();
    for (int64_t p = 0; p < e.pieces; ++p) value = Op{}(value, part[p * e.inner]);
    put<write>(y[i], value);
  }
};

/// JoinPieces for columns: a block for 32 of them; its warps take pieces in turn and are joined in
/// order.
template <class Op, class A, class U, Write write> struct JoinColumns {
  static constexpr int threads = 256, warps = threads / 32;
  using Shared = OfWarps<A, 1>;
  const A* parts;
  U* y;
  Pieces e;

  static int64_t blocks(const Extent& e) { return e.outer * ((e.inner + 31) / 32); }
  TRIAX_HD void operator()(const Thread& t, Shared& shared) const { join(t, t.block.x, shared); }
  TRIAX_HD void join(const Thread& t, int64_t block, Shared& shared) const {
    int64_t groups = (e.inner + 31) / 32, outer = block / groups;
    int64_t first = (block - outer * groups) * 32, column = first + t.lane();
    const A* part = parts + outer * e.pieces * e.inner + column;
    A value[1] = {Op::template identity<A>()};
    if (column < e.inner)
#pragma unroll 8
      for (int64_t p = t.warp(); p < e.pieces; p += warps)
        value[0] = Op{}(value[0], part[p * e.inner]);
    join_warps(t, value, Op{}, shared, [&](int c, A joined) {
      if (first + c < e.inner) put<write>(y[outer * e.inner + first + c], joined);
    });
  }
};

/// Runs one or two joins in a launch, of `each` blocks.
template <class Join> struct JoinPair {
  static constexpr int threads = Join::threads;
  using Shared = typename Join::Shared;
  Join first, second;
  int64_t each;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    if (t.block.x < each) first.join(t, t.block.x, shared);
    else second.join(t, t.block.x - each, shared);
  }
};

/// A sum of squares and a number of non-finite elements.
struct Squares {
  double sum = 0, bad = 0;

  /// Joins all threads of the block; the first one stores to = or += the total.
  template <Write write>
  TRIAX_HD void total(const Thread& t, Partials<double>& partials, double* to) const {
    double all = reduce_block(t, sum, Sum{}, partials);
    double all_bad = reduce_block(t, bad, Sum{}, partials);
    if (t.id > 0) return;
    put<write>(to[0], all);
    put<write>(to[1], all_bad);
  }
};

/// parts[p] of piece p.
template <class T> struct SquaresOfPieces {
  static constexpr int threads = 256;
  static constexpr int64_t piece = 1 << 14;
  using Shared = Partials<double>;
  const T* x;
  double* parts;
  int64_t n;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    Squares mine;
    int64_t begin = t.block.x * piece, end = begin + piece < n ? begin + piece : n;
    walk_row(t, x + begin, end - begin, true, [&](int64_t, const auto& chunk) {
#pragma unroll
      for (int k = 0; k < chunk.size; ++k) {
        double v = double(load(chunk.at[k]));
        mine.sum += v * v;
        mine.bad += v - v == 0 ? 0. : 1.;
      }
    });
    mine.total<Write::set>(t, shared, parts + 2 * t.block.x);
  }
};

/// out += the sums of the pieces; one block.
struct JoinSquares {
  static constexpr int threads = 256;
  using Shared = Partials<double>;
  const double* parts;
  double* out;
  int64_t pieces;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    Squares mine;
    for (int64_t p = t.id; p < pieces; p += t.threads) {
      mine.sum += parts[2 * p];
      mine.bad += parts[2 * p + 1];
    }
    mine.total<Write::add>(t, shared, out);
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
