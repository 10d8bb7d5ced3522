#pragma once
#include <omp.h>

#include "core/convert.h"
#include "core/cpu/bf16_terms.h"
#include "core/cpu/parallel.h"
#include "core/cpu/products.h"
#include "core/cpu/scratch.h"
#include "core/functors/gelu.h"

// Products of bf16 and of f32 in tiles. Strips of b (32 columns) are packed one at a time and stay
// close to the core while the strips of a block of rows pass by. Cuts in rows and columns change no
// bit. Nor do those in depth for bf16: a sum of f32 is what it was after a tile was put down and
// taken up again. For f32 they depend on the depth alone, and what passes give is added in f32, so
// that sums stay as exact as in core/cpu/matmul.cpp.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// How products are cut for the caches, in elements of c.
template <class T> struct CacheLimits {
  /// Depth of one pass, at most: a strip of b is half of the first-level cache, for f32 more.
  static constexpr int64_t depth = 384;
  /// Rows at once, at most, packed or where they lie: in the second-level cache.
  static constexpr int64_t rows_packed = 704, rows_in_place = 1024;
  /// Bytes of a number in packed strips.
  static constexpr int64_t packed_bytes = 2;
};
template <> struct CacheLimits<float> {
  static constexpr int64_t depth = 384, rows_packed = 320, rows_in_place = 0;
  static constexpr int64_t packed_bytes = 2 * terms;
};
/// Sums of bf16 that wait for the next pass, at most: in the second-level cache. Those of f32 stand
/// in c.
constexpr int64_t sums_waiting = 1 << 18;

/// Spreads `n` over as few parts of at most `most` as there can be, of whole multiples of 32.
constexpr int64_t spread(int64_t n, int64_t most) {
  int64_t parts = n > most ? (n + most - 1) / most : 1;
  return round_up((n + parts - 1) / parts, side);
}

/// row = elements of one row of c's kind, `stride` apart.
template <class C> TRIAX_HD void load_part(const C* from, int64_t stride, int64_t n, float* row) {
  if (stride == 1) {
    for (int64_t j = 0; j < n; ++j) row[j] = convert<float>(from[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) row[j] = convert<float>(from[j * stride]);
  }
}
TRIAX_HD void store_part(const float* row, int64_t n, BFloat16* to, int64_t stride) {
  if (stride == 1) store_row(to, round_row(row), n);
  else
    for (int64_t j = 0; j < n; ++j) to[j * stride] = BFloat16(row[j]);
}
TRIAX_HD void store_part(const float* row, int64_t n, float* to, int64_t stride) {
  for (int64_t j = 0; j < n; ++j) to[j * stride] = row[j];
}

/// Makes blocks of c, on one thread.
template <class T, class C> class TileWorker {
 public:
  using P = Product<T, C>;
  using Limit = CacheLimits<T>;
  static constexpr bool is_f32 = __is_same(T, float);

  /// Whether strips of a are read where they lie: whole, on cache lines, and rows are not far
  /// apart.
  static bool a_in_place(const P& p) {
    return !is_f32 && p.a.inner == 1 && p.k <= Limit::depth && p.m % side == 0 && p.k % side == 0 &&
           p.a.outer % side == 0 && reinterpret_cast<uintptr_t>(p.a.data) % 64 == 0;
  }

  /// Bytes of working memory, whatever the piece.
  static int64_t room(const P& p) {
    int64_t depth = spread(p.k, Limit::depth);
    int64_t rows = fn::min(round_up(p.m, side), Limit::rows_packed);
    int64_t sums = waits(p, depth) ? fn::min(sums_waiting, strips_size(p.m, p.n)) : int64_t{square};
    return Limit::packed_bytes * (rows + strips_of_b * side) * depth + 4 * sums;
  }

  /// For a piece of `rows` rows; `memory` on a cache line.
  TileWorker(const P& p, int64_t rows, char* memory)
      : p_(p),
        in_place_(a_in_place(p)),
        high_(spread(rows, in_place_ ? Limit::rows_in_place : Limit::rows_packed)),
        depth_(spread(p.k, Limit::depth)),
        wide_(side) {
    if (waits(p, depth_)) wide_ = fn::min(sums_waiting / high_ / side * side, round_up(p.n, side));
    a_ = reinterpret_cast<BFloat16*>(memory);
    b_ = a_ + (in_place_ ? 0 : high_ * depth_) * Limit::packed_bytes / 2;
    sums_ = reinterpret_cast<float*>(b_ + strips_of_b * strip_of_b());
  }

  void make(const Block& piece) {
    int64_t cols = waits(p_, depth_) ? spread(piece.cols, wide_) : piece.cols;
    for (int64_t i = 0; i < piece.rows; i += high_)
      for (int64_t j = 0; j < piece.cols; j += cols)
        make_block({piece.row + i, piece.col + j, fn::min(high_, piece.rows - i),
                    fn::min(cols, piece.cols - j)});
  }

 private:
  /// Whether sums of several passes wait in working memory.
  static bool waits(const P& p, int64_t depth) { return !is_f32 && p.k > depth; }

  /// Of f32 two strips of b are packed: one while the other is multiplied.
  static constexpr int strips_of_b = is_f32 ? 2 : 1;
  int64_t strip_of_b() const { return side * depth_ * Limit::packed_bytes / 2; }

  void make_block(const Block& block) {
    int64_t first = 0;
    do {
      int64_t depth = fn::min(depth_, p_.k - first), steps = (depth + side - 1) / side;
      pack_rows(block, first, depth);
      if constexpr (is_f32) pack_ahead(block, 0, first, depth);
      for (int64_t j = 0; j < block.cols; j += side) {
        int64_t width = fn::min<int64_t>(side, block.cols - j);
        if constexpr (is_f32) pack_ahead(block, j + side, first, depth);
        else pack_strips<Part::right>(p_.b.at(block.col + j, first), width, depth, b_);
        for (int64_t i = 0; i < block.rows; i += side) {
          Block at{block.row + i, block.col + j, fn::min<int64_t>(side, block.rows - i), width};
          if constexpr (is_f32) {
            add_square(at, i, first, depth);
          } else {
            Left a{a_ + i * steps * side};
            if (in_place_) a = {p_.a.at(block.row + i, first).data, p_.a.outer, side};
            make_square(at, a, steps, first, p_.k > depth_ ? sums_ + i * wide_ + j * side : sums_);
          }
        }
      }
    } while ((first += depth_) < p_.k);
  }

  void pack_rows(const Block& block, int64_t first, int64_t depth) {
    Operand<T> from = p_.a.at(block.row, first);
    if constexpr (is_f32) {
      for (int64_t i = 0; i < block.rows; i += side) of_rows_[i / side] = {};
      pack_strips<Part::left>(from, block.rows, depth, of_rows_, a_);
    } else if (!in_place_) {
      pack_strips<Part::left>(from, block.rows, depth, a_);
    }
  }
  /// Completes the strip that was begun, which is now multiplied, and begins with that of column
  /// `j` of the block, if there is one.
  void pack_ahead(const Block& block, int64_t j, int64_t first, int64_t depth) {
    FlushDenormals flush;
    packer_.finish();
    of_columns_ = packer_.largest();
    b_now_ = b_ + (j / side + 1) % 2 * strip_of_b();
    if (j < block.cols)
      packer_.start(p_.b.at(block.col + j, first), fn::min<int64_t>(side, block.cols - j), depth,
                    b_ + j / side % 2 * strip_of_b());
  }

  /// bf16: adds what the pass from depth `first` on gives.
  void make_square(const Block& at, const Left& a, int64_t steps, int64_t first, float* sums) {
    bool last = first + depth_ >= p_.k;
    if constexpr (__is_same(C, float))
      if (at.rows == side && at.cols == side && p_.c_col == 1 && !p_.goes_on()) {
        Write write = first > 0 ? Write::add : p_.write;
        multiply_strips(a, b_, steps, p_.c + at.row * p_.c_row + at.col, p_.c_row, write);
        return;
      }
    multiply_strips(a, b_, steps, sums, side, first > 0 ? Write::add : Write::set);
    if (last) finish(at, sums, p_.write, true);
  }

  /// f32: the same, of strip `i` of the rows. Sums of passes are added in c.
  void add_square(const Block& at, int64_t i, int64_t first, int64_t depth) {
    int64_t steps = (depth + side - 1) / side;
    const BFloat16* a = a_ + i * steps * side * terms;
    bool last = first + depth_ >= p_.k;
    bool fits = Magnitude::fit(of_rows_[i / side], of_columns_);
    Write write = first > 0 ? Write::add : p_.write;
    bool whole = at.rows == side && at.cols == side && p_.c_col == 1;
    if (p_.c_col == 1) fetch(p_.c + at.row * p_.c_row + at.col, p_.c_row, at.rows);
    const float* beside = p_.before ? p_.before : p_.gelu_of;
    if (last && beside && p_.before_col == 1)
      fetch(beside + at.row * p_.before_row + at.col, p_.before_row, at.rows);
    if (fits && whole && write == Write::set && !(last && p_.goes_on())) {
      multiply(a, steps, p_.c + at.row * p_.c_row + at.col, p_.c_row);
      return;
    }
    if (fits) multiply(a, steps, sums_, side);
    else multiply_scalar(p_.a.at(at.row, first), p_.b.at(at.col, first), at, depth, sums_);
    finish(at, sums_, write, last);
  }

  void multiply(const BFloat16* a, int64_t steps, float* c, int64_t stride) {
    FlushDenormals flush;
    multiply_terms(a, b_now_, steps, c, stride, [this] { packer_.advance(); });
  }

  /// Prefetches a square of memory while its products are computed.
  TRIAX_HD static void fetch(const float* at, int64_t stride, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r, at += stride) {
      __builtin_prefetch(at, 1);
      __builtin_prefetch(at + 16, 1);
    }
  }

  /// Whether everything around a square lies in rows.
  bool plain(const Block& at) const {
    return at.rows == side && at.cols == side && p_.c_col == 1 &&
           (!p_.bias || (p_.bias_row == 0 && p_.bias_col == 1)) &&
           ((!p_.before && !p_.gelu_of) || p_.before_col == 1);
  }

  /// Adds old c and, in the last pass, bias, multiplies by gelu's slope, or applies gelu; rounded
  /// once, with gelu twice.
  void finish(const Block& at, const float* sums, Write write, bool last) {
    if (plain(at)) finish_rows<true>(at, sums, write, last);
    else finish_rows<false>(at, sums, write, last);
  }
  /// For a `whole` square of contiguous rows, sizes and strides are compile-time constants, so that
  /// the loops vectorise.
  template <bool whole>
  void finish_rows(const Block& at, const float* sums, Write write, bool last) {
    const int64_t cols = whole ? side : at.cols, c_col = whole ? 1 : p_.c_col;
    const int64_t bias_col = whole ? 1 : p_.bias_col, before_col = whole ? 1 : p_.before_col;
    float old[side], bias[side], row[side], x[side] = {};
    auto load_bias = [&](int64_t r) {
      load_part(p_.bias + r * p_.bias_row + at.col * bias_col, bias_col, cols, bias);
    };
    bool biased = last && p_.bias, with_gelu = last && p_.before;
    if (biased && p_.bias_row == 0) load_bias(0);
    for (int64_t r = at.row; r < at.row + (whole ? side : at.rows); ++r, sums += side) {
      C* c = p_.c + r * p_.c_row + at.col * c_col;
      for (int j = 0; j < side; ++j) row[j] = sums[j];
      if (write == Write::add) {
        load_part(c, c_col, cols, old);
        for (int64_t j = 0; j < cols; ++j) row[j] += old[j];
      }
      if (biased) {
        if (p_.bias_row != 0) load_bias(r);
        for (int64_t j = 0; j < cols; ++j) row[j] += bias[j];
      }
      if (last && p_.gelu_of) {
        load_part(p_.gelu_of + r * p_.before_row + at.col * before_col, before_col, cols, x);
        for (int j = 0; j < side; ++j) row[j] *= functors::Gelu::slope(x[j], 0.f);
      }
      if (with_gelu) {  // gelu of the rounded values, so that gelu(before) gives the same bits
        store_part(row, cols, p_.before + r * p_.before_row + at.col * before_col, before_col);
        for (int j = 0; j < side; ++j) row[j] = functors::Gelu::forward(float(T(row[j])));
      }
      store_part(row, cols, c, c_col);
    }
  }

  const P& p_;
  bool in_place_;
  int64_t high_, depth_, wide_;
  BFloat16 *a_, *b_, *b_now_ = nullptr;
  float* sums_;
  ColumnPacker packer_;  // of f32
  Magnitude of_rows_[is_f32 ? Limit::rows_packed / side : 1], of_columns_;
};

/// In cycles of a step: tile products of 16, and packing squares.
template <class T> constexpr Costs tile_costs(bool a_in_place) {
  if (__is_same(T, float))
    return {.rows = side, .cols = side, .tile = 384, .pack_rows = 600, .pack_cols = 600};
  return {
      .rows = side, .cols = side, .tile = 64, .pack_rows = a_in_place ? 8 : 100, .pack_cols = 80};
}
/// Multiply-adds; starting a team costs microseconds.
template <class T> constexpr int64_t tile_work_of_a_thread = 1 << (__is_same(T, float) ? 20 : 22);

template <class T, class C> void tile_products(const Matmul& p) {
  if (p.c.numel() == 0) return;
  Product<T, C> one = product<T, C>(p, 0);
  int64_t batches = p.c.numel() / (one.m * one.n);
  int64_t threads = fn::min<int64_t>(
      threads_here(), batches * one.m * one.n * one.k / tile_work_of_a_thread<T> + 1);
  bool whole = batches % threads == 0 || batches >= 4 * threads;
  Cut cuts =
      whole ? Cut{} : cut(one.m, one.n, threads, tile_costs<T>(TileWorker<T, C>::a_in_place(one)));
  int64_t each = round_up(TileWorker<T, C>::room(one), 64);
  Scratch<char> scratch(threads * each);
  char* room = scratch.data();
#pragma omp parallel num_threads(int(threads))
  {
    Tiles tiles;
    for (int64_t task = omp_get_thread_num(); task < batches * cuts.rows * cuts.cols;
         task += omp_get_num_threads()) {
      Product<T, C> x = product<T, C>(p, task / (cuts.rows * cuts.cols));
      Span rows(x.m, side, cuts.rows, task / cuts.cols % cuts.rows);
      TileWorker<T, C> worker(x, rows.end - rows.begin, room + each * omp_get_thread_num());
      Span cols(x.n, side, cuts.cols, task % cuts.cols);
      worker.make({rows.begin, cols.begin, rows.end - rows.begin, cols.end - cols.begin});
    }
  }
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
