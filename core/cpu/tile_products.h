#pragma once
#include <omp.h>

#include "core/cpu/parallel.h"
#include "core/cpu/scratch.h"
#include "core/cpu/strip_packer.h"
#include "core/cpu/tile_finish.h"

// Products of bf16 and of f32 in tiles. Strips of b (32 columns) are packed one at a time and stay
// close to the core while the strips of a block of rows pass by. While tiles multiply, the vector
// units pack the next strip and finish the square before. Cuts in rows and columns change no bit.
// Nor do those in depth for bf16: a sum of f32 is what it was after a tile was put down and taken
// up again. For f32 they depend on the depth alone, and what passes give is added in f32, so that
// sums stay as exact as in core/cpu/matmul.cpp.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// How products are cut for the caches.
template <class T> struct CacheLimits {
  /// Depth of one pass, at most: a strip of b fills half of the first-level cache, of f32 more.
  static constexpr int64_t depth = 384;
  /// Rows packed at once, at most: in the second-level cache.
  static constexpr int64_t rows = 704;
  /// Elements of bf16 for a packed number.
  static constexpr int64_t packed = 1;
};
template <> struct CacheLimits<float> {
  static constexpr int64_t depth = 384, rows = 320, packed = terms;
};
/// Sums of bf16 that wait for the next pass, at most: in the second-level cache. Those of f32 stand
/// in c.
constexpr int64_t sums_waiting = 1 << 18;

/// Spreads `n` over as few parts of at most `most` as there can be, of whole multiples of 32.
constexpr int64_t spread(int64_t n, int64_t most) {
  int64_t parts = n > most ? (n + most - 1) / most : 1;
  return round_up((n + parts - 1) / parts, side);
}

/// Makes blocks of c, on one thread.
template <class T, class C> class TileWorker {
 public:
  using P = Product<T, C>;
  using Limit = CacheLimits<T>;
  static constexpr bool is_f32 = __is_same(T, float);

  /// Bytes of working memory, whatever the piece.
  static int64_t room(const P& p) {
    int64_t depth = spread(p.k, Limit::depth), rows = fn::min(round_up(p.m, side), Limit::rows);
    int64_t sums = waits(p, depth) ? fn::min(sums_waiting, strips_size(p.m, p.n)) : 2 * square;
    return Limit::packed * (rows + 2 * side) * depth * int64_t(sizeof(BFloat16)) + 4 * sums;
  }

  /// For a piece of `rows` rows; `memory` on a cache line.
  TileWorker(const P& p, int64_t rows, char* memory)
      : p_(p),
        high_(spread(rows, Limit::rows)),
        depth_(spread(p.k, Limit::depth)),
        wide_(side),
        finisher_(p) {
    if (waits(p, depth_)) wide_ = fn::min(sums_waiting / high_ / side * side, round_up(p.n, side));
    a_ = reinterpret_cast<BFloat16*>(memory);
    b_ = a_ + high_ * depth_ * Limit::packed;
    sums_ = reinterpret_cast<float*>(b_ + 2 * strip_of_b());
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

  /// Elements of a packed strip of b. There are two: one is packed while the other is multiplied.
  int64_t strip_of_b() const { return side * depth_ * Limit::packed; }

  void make_block(const Block& block) {
    int64_t first = 0;
    do {  // once for an empty sum
      Pass pass{first, fn::min(depth_, p_.k - first)};
      pack_row(block, 0, pass);
      pack_column(block, 0, pass);
      for (int64_t j = 0; j < block.cols; j += side) {
        columns_.finish();
        b_now_ = b_ + j / side % 2 * strip_of_b();
        if constexpr (is_f32) of_columns_ = columns_.largest();
        pack_column(block, j + side, pass);
        for (int64_t i = 0; i < block.rows; i += side) {
          if (j == 0) {
            rows_.finish();
            if constexpr (is_f32) of_rows_[i / side] = rows_.largest();
            pack_row(block, i + side, pass);
          }
          make_square(block, i, j, pass);
        }
      }
    } while ((first += depth_) < p_.k);
    finisher_.finish();
  }

  /// A part of the depth.
  struct Pass {
    int64_t first, depth;
    int64_t steps() const { return (depth + side - 1) / side; }
  };

  /// Elements from one packed strip of rows to the next.
  static int64_t strip_of_a(const Pass& pass) { return pass.steps() * square * Limit::packed; }

  /// Begins with the strip from row `i` of a block on, or from column `j`, if there is one.
  void pack_row(const Block& block, int64_t i, const Pass& pass) {
    if (i < block.rows)
      rows_.start(p_.a.at(block.row + i, pass.first), fn::min<int64_t>(side, block.rows - i),
                  pass.depth, a_ + i / side * strip_of_a(pass));
  }
  void pack_column(const Block& block, int64_t j, const Pass& pass) {
    if (j < block.cols)
      columns_.start(p_.b.at(block.col + j, pass.first), fn::min<int64_t>(side, block.cols - j),
                     pass.depth, b_ + j / side % 2 * strip_of_b());
  }

  /// Adds what a pass gives to the square at row `i` and column `j` of a block: in working memory
  /// or, of f32, in c.
  void make_square(const Block& block, int64_t i, int64_t j, const Pass& pass) {
    Block at{block.row + i, block.col + j, fn::min<int64_t>(side, block.rows - i),
             fn::min<int64_t>(side, block.cols - j)};
    bool last = pass.first + depth_ >= p_.k, whole = at.rows == side && at.cols == side;
    Write write = pass.first > 0 ? Write::add : p_.write;
    Results results{at, is_f32 ? write : p_.write, last};  // bf16: of complete sums
    C* c = p_.c + at.row * p_.c_row + at.col * p_.c_col;
    bool more_follows = p_.goes_on() && (last || !is_f32);
    bool direct = __is_same(C, float) && whole && p_.c_col == 1 && !more_follows;
    if constexpr (is_f32) {
      finisher_.expect(results);
      float* sums = other_sums();
      if (!Magnitude::fit(of_rows_[i / side], of_columns_)) {
        multiply_scalar(p_.a.at(at.row, pass.first), p_.b.at(at.col, pass.first), at, pass.depth,
                        sums);
      } else if (direct && write == Write::set) {
        return multiply(i, pass, {c, p_.c_row});
      } else {
        multiply(i, pass, {sums, side});
      }
      finisher_.start(results, sums);
    } else {
      if constexpr (__is_same(C, float)) {
        if (direct) {  // tiles load and store c themselves
          finisher_.expect({next_square(at, block), write, last});
          return multiply(i, pass, {c, p_.c_row}, write);
        }
      }
      if (last) finisher_.expect(results);
      float* sums = p_.k > depth_ ? sums_ + i * wide_ + j * side : other_sums();
      multiply(i, pass, {sums, side}, pass.first > 0 ? Write::add : Write::set);
      if (last) finisher_.start(results, sums);
    }
  }

  /// The one that make_block() makes after `at`, without rows if that is the last one.
  static Block next_square(Block at, const Block& block) {
    at.row += side;
    if (at.row >= block.row + block.rows) at.row = block.row, at.col += side;
    int64_t left = at.col < block.col + block.cols ? block.row + block.rows - at.row : 0;
    at.rows = fn::min<int64_t>(side, left);
    return at;
  }

  /// Of two squares of sums that which is not being finished.
  float* other_sums() {
    odd_ = !odd_;
    return sums_ + odd_ * square;
  }

  void multiply(int64_t i, const Pass& pass, const SumSquare& to, Write write = Write::set) {
    int64_t steps = pass.steps(), pieces = is_f32 ? 6 * steps : steps;
    int64_t rows = pieces > 0 ? (side + pieces - 1) / pieces : side;  // finished with each piece
    Strips strips{a_ + i / side * strip_of_a(pass), b_now_, steps};
    auto meanwhile = [this, rows] {
      if (!columns_.done()) columns_.advance();
      if (!rows_.done()) rows_.advance();
      if (!finisher_.idle()) finisher_.advance(rows);
    };
    if constexpr (is_f32) multiply_terms(strips, to, meanwhile);
    else multiply_strips(strips, to, write, meanwhile);
  }

  const P& p_;
  int64_t high_, depth_, wide_;
  BFloat16 *a_, *b_, *b_now_ = nullptr;
  float* sums_;
  bool odd_ = false;
  StripPacker<T, Part::left> rows_;
  StripPacker<T, Part::right> columns_;
  Finisher<T, C> finisher_;
  Magnitude of_rows_[is_f32 ? Limit::rows / side : 1], of_columns_;  // of f32
};

/// In cycles of a step: tile products of 16, and packing squares, most of which tiles hide.
template <class T> constexpr Costs tile_costs() {
  if (__is_same(T, float))
    return {.rows = side, .cols = side, .tile = 384, .pack_rows = 600, .pack_cols = 600};
  return {.rows = side, .cols = side, .tile = 64, .pack_rows = 100, .pack_cols = 80};
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
  Cut cuts = whole ? Cut{} : cut(one.m, one.n, threads, tile_costs<T>());
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
