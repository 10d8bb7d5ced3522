#pragma once
#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/products/multiply.h"
#if defined(__AMX_BF16__)
#include "triax/core/cpu/products/multiply_terms.h"
#endif
#include "triax/core/cpu/products/strip_packer.h"
#include "triax/core/cpu/products/tile_finish.h"
#include "triax/core/cpu/scratch.h"

// Products of bf16 and of f32 in tiles. Strips of a (32 rows) are packed one at a time and stay
// close to the core while the strips of a block of columns pass by, so that c, and what is read
// beside it, is met in the order of memory. While tiles multiply, the vector units pack the next
// strip and finish the square before. Rows of bf16 that tiles can load directly are prefetched and
// not packed. Where rows of memory cross the strips of an operand of bf16, as in gradients, packing
// one strip reads a line of each row, too far apart for the hardware to prefetch: all strips of a
// block are packed first then. Cuts in rows and columns change no bit. Nor do those in depth for
// bf16: a sum of f32 is what it was after a tile was put down and taken up again. For f32 they
// depend on the depth alone, and what passes give is added in f32, so that sums stay as exact as in
// core/cpu/products/matmul.cpp.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Limits by which products are cut for the caches.
template <class T> struct CacheLimits {
  /// The most depth of one pass.
  static constexpr int64_t depth = pass_depth;
  /// The most columns (and rows, if crossed) packed at once: they fit in the second-level cache.
  static constexpr int64_t cols = 704, rows = 704;
  /// Elements of bf16 per packed number.
  static constexpr int64_t packed = 1;
};
template <> struct CacheLimits<float> {
  static constexpr int64_t depth = 384, cols = 448, rows = 0, packed = terms;
};
/// The most sums of bf16 that wait for the next pass: in the second-level cache. Those of f32 stand
/// in c.
constexpr int64_t sums_waiting = 1 << 18;

/// Spreads `n` over as few parts of at most `most` as possible, whole multiples of 32.
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

  /// Returns the bytes of working memory, whatever the piece.
  static int64_t room(const P& p) {
    int64_t depth = spread(p.k, Limit::depth), cols = fn::min(round_up(p.n, side), Limit::cols);
    int64_t sums = waits(p, depth) ? fn::min(sums_waiting, strips_size(p.m, p.n)) : 2 * square;
    return Limit::packed * (cols + rows_packed(p)) * depth * int64_t(sizeof(BFloat16)) + 4 * sums;
  }

  /// Prepares for a piece of `cols` columns; `memory` begins on a cache line.
  TileWorker(const P& p, int64_t cols, char* memory)
      : p_(p), wide_(spread(cols, Limit::cols)), depth_(spread(p.k, Limit::depth)), finisher_(p) {
    b_ = reinterpret_cast<BFloat16*>(memory);
    a_ = b_ + wide_ * depth_ * Limit::packed;
    sums_ = reinterpret_cast<float*>(a_ + rows_packed(p) * depth_ * Limit::packed);
  }

  void make(const Block& piece) {
    int64_t rows = piece.rows;
    if (waits(p_, depth_)) rows = spread(rows, sums_waiting / wide_ / side * side);
    if (crossed(p_.a)) rows = spread(rows, Limit::rows);
    for (int64_t j = 0; j < piece.cols; j += wide_)
      for (int64_t i = 0; i < piece.rows; i += rows)
        make_block({piece.row + i, piece.col + j, fn::min(rows, piece.rows - i),
                    fn::min(wide_, piece.cols - j)});
  }

 private:
  /// The pieces to pack at a time for a strip to be packed when one square is multiplied: for f32
  /// up to 20 a step, and 6 times.
  static constexpr int64_t pace = is_f32 ? 4 : 1;

  /// True if sums of several passes wait in working memory.
  static bool waits(const P& p, int64_t depth) { return !is_f32 && p.k > depth; }

  /// True if rows of memory cross the strips. For f32 tiles take six times as long, and hide it.
  static bool crossed(const Operand<T>& x) { return !is_f32 && x.inner != 1; }

  /// Returns the rows of a that are packed at a time: two strips where one is packed while the
  /// other is multiplied.
  static int64_t rows_packed(const P& p) {
    return crossed(p.a) ? fn::min(round_up(p.m, side), Limit::rows) : 2 * side;
  }

  void make_block(const Block& block) {
    int64_t first = 0;
    squares_ = (block.cols + side - 1) / side;
    rows_pace_ = (pace + squares_ - 1) / squares_;
    do {  // once for an empty sum
      Pass pass{first, fn::min(depth_, p_.k - first)};
      pack_row(block, 0, pass);
      pack_column(block, 0, pass);
      for (int64_t i = 0; i < block.rows; i += side) {
        rows_.finish();
        use_row(block, i, pass);
        if (!is_f32 && p_.row_sums && block.col == 0) sum_rows(block, i, pass);
        if constexpr (is_f32) of_rows_ = rows_.exponents();
        pack_row(block, i + side, pass);
        for (int64_t j = 0; j < block.cols; j += side) {
          if (i == 0) {
            columns_.finish();
            if constexpr (is_f32) of_columns_[j / side] = columns_.exponents();
            pack_column(block, j + side, pass);
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

  /// Returns the elements from one packed strip to the next.
  static int64_t strip_size(const Pass& pass) { return pass.steps() * square * Limit::packed; }
  /// Returns the packed strips from row `i` of a block on, and from column `j`.
  BFloat16* strip_of_a(int64_t i, const Pass& pass) const {
    return a_ + (crossed(p_.a) ? i / side : i / side % 2) * strip_size(pass);
  }
  BFloat16* strip_of_b(int64_t j, const Pass& pass) const {
    return b_ + j / side * strip_size(pass);
  }

  /// Starts packing the strip from row `i` of a block on, or from column `j`, if there is one that
  /// is not packed yet.
  void pack_row(const Block& block, int64_t i, const Pass& pass) {
    Operand<T> x = p_.a.at(block.row + i, pass.first);
    if constexpr (!is_f32)
      if (loads_directly(x, block.rows - i, pass)) {
        if (i > 0) fetcher_.start(x, side, pass.depth, squares_ * pass.steps());
        return;
      }
    if (waiting(p_.a, i, block.rows)) start(rows_, x, block.rows - i, pass, strip_of_a(i, pass));
  }
  /// Selects the strip of a, from row `i` of a block on, that the next squares multiply.
  void use_row(const Block& block, int64_t i, const Pass& pass) {
    now_ = {strip_of_a(i, pass), nullptr, pass.steps()};
    Operand<T> x = p_.a.at(block.row + i, pass.first);
    if constexpr (!is_f32)
      if (loads_directly(x, block.rows - i, pass))
        now_.a = x.data, now_.a_row = x.outer, now_.a_step = side;
  }
  /// Adds this pass's part of row_sums: the strip in use times a tile of ones.
  void sum_rows(const Block& block, int64_t i, const Pass& pass) {
    alignas(64) float sums[2 * 16 * 16];  // 16 equal columns
    multiply_ones(now_, sums);
    int64_t rows = fn::min<int64_t>(side, block.rows - i);
    float* to = p_.row_sums + block.row + i;
    bool adds = pass.first > 0 || p_.write == Write::add;
    for (int64_t r = 0; r < rows; ++r) to[r] = (adds ? to[r] : 0) + sums[r * 16];
  }
  /// True if tiles can load the first 32 of `rows` rows of a straight from memory: complete rows,
  /// whole steps of 32, each step one aligned cache line. Rows a multiple of 2 KiB apart would
  /// compete for a few sets of the first-level cache.
  static bool loads_directly(const Operand<T>& x, int64_t rows, const Pass& pass) {
    constexpr int64_t few_sets = 32 * side;
    return takes_rows_in_place && x.inner == 1 && rows >= side && pass.depth % side == 0 &&
           x.outer % side == 0 && x.outer % few_sets != 0 &&
           reinterpret_cast<uintptr_t>(x.data) % 64 == 0;
  }
  void pack_column(const Block& block, int64_t j, const Pass& pass) {
    if (waiting(p_.b, j, block.cols))
      start(columns_, p_.b.at(block.col + j, pass.first), block.cols - j, pass,
            strip_of_b(j, pass));
  }
  /// True if strip `i` has to be packed now: crossed strips are all packed with the first.
  static bool waiting(const Operand<T>& x, int64_t i, int64_t count) {
    return i == 0 || (i < count && !crossed(x));
  }
  /// Starts packing one strip, or all of `count` rows or columns.
  template <Part part>
  static void start(StripPacker<T, part>& packer, Operand<T> x, int64_t count, const Pass& pass,
                    BFloat16* to) {
    if constexpr (!is_f32)
      if (crossed(x)) return pack_crossed<part>(x, count, pass.depth, to);
    packer.start(x, fn::min<int64_t>(side, count), pass.depth, to);
  }

  /// Adds a pass's products to the square at row `i` and column `j` of a block: in working memory
  /// or, for f32, in c.
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
      bool fits = Exponents::all_fit(of_rows_, of_columns_[j / side]);
      if constexpr (__is_same(C, float))
        if (fits && direct && write == Write::set) return multiply(j, pass, {c, p_.c_row});
      float* sums = other_sums();
      multiply(j, pass, {sums, side});
      if (!fits) multiply_again(at, pass, sums);
      finisher_.start(results, sums);
    } else {
      if constexpr (__is_same(C, float)) {
        if (direct) {  // tiles load and store c themselves
          finisher_.expect({next_square(at, block), write, last});
          return multiply(j, pass, {c, p_.c_row}, write);
        }
      }
      if (last) finisher_.expect(results);
      float* sums = p_.k > depth_ ? sums_ + i * wide_ + j * side : other_sums();
      multiply(j, pass, {sums, side}, pass.first > 0 ? Write::add : Write::set);
      if (last) finisher_.start(results, sums);
    }
  }

  /// Recomputes the elements, in rows 32 apart, whose terms do not fit: rare, and slow. Only those,
  /// so that no element depends on the rows and columns beside its own.
  void multiply_again(const Block& at, const Pass& pass, float* c) const {
    int of_columns[side];
    for (int64_t j = 0; j < at.cols; ++j)
      of_columns[j] = exponent_of(p_.b.at(at.col + j, pass.first), pass.depth);
    for (int64_t i = 0; i < at.rows; ++i, c += side) {
      Operand<T> row = p_.a.at(at.row + i, pass.first);
      int of_row = exponent_of(row, pass.depth);
      bool all_fit = true;
      for (int64_t j = 0; j < at.cols; ++j) all_fit &= Exponents::fit(of_row, of_columns[j]);
      if (all_fit) continue;
      float sums[side] = {};
      for (int64_t k = 0; k < pass.depth; ++k)
        for (int64_t j = 0; j < at.cols; ++j)
          sums[j] =
              fn::fma(row.at(0, k).data[0], p_.b.at(at.col + j, pass.first + k).data[0], sums[j]);
      for (int64_t j = 0; j < at.cols; ++j)
        if (!Exponents::fit(of_row, of_columns[j])) c[j] = sums[j];
    }
  }
  static int exponent_of(Operand<T> x, int64_t depth) {
    uint32_t most = 0;
    for (int64_t k = 0; k < depth; ++k)
      most = fn::max(most, __builtin_bit_cast(uint32_t, x.at(0, k).data[0]) << 1);
    return Exponents::of(most);
  }

  /// Returns the square that make_block() makes after `at`, without rows if that is the last one.
  static Block next_square(Block at, const Block& block) {
    at.col += side;
    if (at.col >= block.col + block.cols) at.col = block.col, at.row += side;
    int64_t left = block.row + block.rows - at.row;
    at.rows = fn::min<int64_t>(side, left);
    return at;
  }

  /// Returns that of two squares of sums which is not being finished.
  float* other_sums() {
    odd_ = !odd_;
    return sums_ + odd_ * square;
  }

  void multiply(int64_t j, const Pass& pass, const SumSquare& to, Write write = Write::set) {
    int64_t steps = pass.steps(), pieces = is_f32 ? 6 * steps : steps;
    int64_t rows = pieces > 0 ? (side + pieces - 1) / pieces : side;  // finished with each piece
    Strips strips = now_;
    strips.b = strip_of_b(j, pass);
    auto meanwhile = [this, rows] {
      if (!columns_.done()) columns_.advance(pace);
      if (!rows_.done()) rows_.advance(rows_pace_);
      fetcher_.advance();
      if (!finisher_.idle()) finisher_.advance(rows);
    };
    if constexpr (is_f32) multiply_terms(strips, to, meanwhile);
    else multiply_strips(strips, to, write, meanwhile);
  }

  const P& p_;
  int64_t wide_, depth_, squares_ = 1, rows_pace_ = 1;
  BFloat16 *a_, *b_;
  Strips now_{};  // of a
  float* sums_;
  bool odd_ = false;
  StripPacker<T, Part::left> rows_;
  Fetcher<T> fetcher_;
  StripPacker<T, Part::right> columns_;
  Finisher<T, C> finisher_;
  Exponents of_rows_, of_columns_[is_f32 ? Limit::cols / side : 1];  // of f32
};

/// Returns costs in cycles a step: tile products of 16, and packing squares, mostly hidden.
template <class T> constexpr Costs tile_costs() {
  if (__is_same(T, float))
    return {.rows = side, .cols = side, .tile = 384, .pack_rows = 600, .pack_cols = 600};
  return {.rows = side, .cols = side, .tile = square_cycles, .pack_rows = 100, .pack_cols = 80};
}
/// The multiply-adds that are worth a thread; starting a team costs microseconds.
template <class T>
constexpr int64_t tile_work_of_a_thread = __is_same(T, float)
                                              ? 1 << 20
                                              : 8192 * square * side / square_cycles;

template <class T, class C> void tile_products(const Matmul& p) {
  if (p.c.numel() == 0) return;
  Product<T, C> one = product<T, C>(p, 0);
  int64_t batches = p.c.numel() / (one.m * one.n);
  int64_t threads = fn::min<int64_t>(
      threads_here(), batches * one.m * one.n * one.k / tile_work_of_a_thread<T> + 1);
  int64_t added = p.adds_up() ? batches : 1;  // to one c
  bool whole = added == 1 && (batches % threads == 0 || batches >= 4 * threads);
  Cut cuts = whole ? Cut{} : cut(one.m, one.n, threads, tile_costs<T>());
  int64_t each = round_up(TileWorker<T, C>::room(one), 64);
  Scratch<char> scratch(threads * each);
  char* room = scratch.data();
  in_team(threads, [&](int64_t share) {
    Tiles tiles;
    for (int64_t task = share; task < batches / added * cuts.rows * cuts.cols; task += threads) {
      Span rows(one.m, side, cuts.rows, task / cuts.cols % cuts.rows);
      Span cols(one.n, side, cuts.cols, task % cuts.cols);
      int64_t first = task / (cuts.rows * cuts.cols) * added;
      for (int64_t i = 0; i < added; ++i) {
        Product<T, C> x = product<T, C>(p, first + i);
        if (i > 0) x.write = Write::add;
        TileWorker<T, C> worker(x, cols.end - cols.begin, room + each * share);
        worker.make({rows.begin, cols.begin, rows.end - rows.begin, cols.end - cols.begin});
      }
    }
  });
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
