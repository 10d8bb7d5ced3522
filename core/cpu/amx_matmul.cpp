#include <omp.h>

#include "core/convert.h"
#include "core/cpu/amx.h"
#include "core/cpu/products.h"
#include "core/cpu/scratch.h"
#include "core/cpu/tiles.h"
#include "core/functors/gelu.h"

// Products of bf16. Strips of b (32 columns) are packed one at a time and stay in the first-level
// cache while the strips of a block of rows, in the second, pass by. A sum of f32 is what it was
// after a tile was put down and taken up again, so cuts in depth, like all others, change no bit.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Depth of one pass, at most: a strip of b is half of the first-level cache.
constexpr int64_t pass_depth = 384;
/// Rows at once, at most, and sums that wait for the next pass: in the second-level cache.
constexpr int64_t rows_packed = 704, rows_in_place = 1024, sums_waiting = 1 << 18;

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
template <class C> class Worker {
 public:
  using P = Product<BFloat16, C>;

  /// Whether strips of a are read where they lie: whole, on cache lines, and rows are not far
  /// apart.
  static bool a_in_place(const P& p) {
    return p.a.inner == 1 && p.k <= pass_depth && p.m % side == 0 && p.k % side == 0 &&
           p.a.outer % side == 0 && reinterpret_cast<uintptr_t>(p.a.data) % 64 == 0;
  }

  /// Bytes of working memory, whatever the piece.
  static int64_t room(const P& p) {
    int64_t depth = spread(p.k, pass_depth), rows = fn::min(round_up(p.m, side), rows_packed);
    int64_t sums = p.k > depth ? fn::min(sums_waiting, strips_size(p.m, p.n)) : square;
    return 2 * (rows + side) * depth + 4 * sums;
  }

  /// For a piece of `rows` rows; `memory` on a cache line.
  Worker(const P& p, int64_t rows, char* memory)
      : p_(p),
        in_place_(a_in_place(p)),
        high_(spread(rows, in_place_ ? rows_in_place : rows_packed)),
        depth_(spread(p.k, pass_depth)),
        wide_(side) {
    if (p.k > depth_) wide_ = fn::min(sums_waiting / high_ / side * side, round_up(p.n, side));
    a_ = reinterpret_cast<BFloat16*>(memory);
    b_ = a_ + (in_place_ ? 0 : high_ * depth_);
    sums_ = reinterpret_cast<float*>(b_ + side * depth_);
  }

  void make(const Block& piece) {
    int64_t cols = p_.k > depth_ ? spread(piece.cols, wide_) : piece.cols;
    for (int64_t i = 0; i < piece.rows; i += high_)
      for (int64_t j = 0; j < piece.cols; j += cols)
        make_block({piece.row + i, piece.col + j, fn::min(high_, piece.rows - i),
                    fn::min(cols, piece.cols - j)});
  }

 private:
  void make_block(const Block& block) {
    int64_t first = 0;
    do {
      int64_t depth = fn::min(depth_, p_.k - first), steps = (depth + side - 1) / side;
      if (!in_place_) pack_strips<Part::left>(p_.a.at(block.row, first), block.rows, depth, a_);
      for (int64_t j = 0; j < block.cols; j += side) {
        int64_t width = fn::min<int64_t>(side, block.cols - j);
        pack_strips<Part::right>(p_.b.at(block.col + j, first), width, depth, b_);
        for (int64_t i = 0; i < block.rows; i += side) {
          Left a{a_ + i * steps * side};
          if (in_place_) a = {p_.a.at(block.row + i, first).data, p_.a.outer, side};
          make_square({block.row + i, block.col + j, fn::min<int64_t>(side, block.rows - i), width},
                      a, steps, first, p_.k > depth_ ? sums_ + i * wide_ + j * side : sums_);
        }
      }
    } while ((first += depth_) < p_.k);
  }

  /// Adds what the pass from depth `first` on gives.
  void make_square(const Block& at, const Left& a, int64_t steps, int64_t first, float* sums) {
    bool last = first + depth_ >= p_.k;
    if constexpr (__is_same(C, float))
      if (at.rows == side && at.cols == side && p_.c_col == 1 && !p_.bias && !p_.before) {
        Write write = first > 0 ? Write::add : p_.write;
        multiply_strips(a, b_, steps, p_.c + at.row * p_.c_row + at.col, p_.c_row, write);
        return;
      }
    multiply_strips(a, b_, steps, sums, side, first > 0 ? Write::add : Write::set);
    if (last) plain(at) ? finish<true>(at, sums) : finish<false>(at, sums);
  }

  /// Whether everything around a square lies in rows.
  bool plain(const Block& at) const {
    return at.rows == side && at.cols == side && p_.c_col == 1 &&
           (!p_.bias || (p_.bias_row == 0 && p_.bias_col == 1)) &&
           (!p_.before || p_.before_col == 1);
  }

  /// Adds old c and bias, applies gelu; rounded once, with gelu twice. For a `whole` square of
  /// contiguous rows, sizes and strides are compile-time constants, so that the loops vectorise.
  template <bool whole> void finish(const Block& at, const float* sums) {
    const int64_t cols = whole ? side : at.cols, c_col = whole ? 1 : p_.c_col;
    const int64_t bias_col = whole ? 1 : p_.bias_col, before_col = whole ? 1 : p_.before_col;
    float old[side], bias[side], row[side];
    auto load_bias = [&](int64_t r) {
      load_part(p_.bias + r * p_.bias_row + at.col * bias_col, bias_col, cols, bias);
    };
    if (p_.bias && p_.bias_row == 0) load_bias(0);
    for (int64_t r = at.row; r < at.row + (whole ? side : at.rows); ++r, sums += side) {
      C* c = p_.c + r * p_.c_row + at.col * c_col;
      for (int j = 0; j < side; ++j) row[j] = sums[j];
      if (p_.write == Write::add) {
        load_part(c, c_col, cols, old);
        for (int64_t j = 0; j < cols; ++j) row[j] += old[j];
      }
      if (p_.bias) {
        if (p_.bias_row != 0) load_bias(r);
        for (int64_t j = 0; j < cols; ++j) row[j] += bias[j];
      }
      if (p_.before) {  // gelu of the rounded values, so that gelu(before) gives the same bits
        store_part(row, cols, p_.before + r * p_.before_row + at.col * before_col, before_col);
        for (int j = 0; j < side; ++j) row[j] = functors::Gelu::forward(float(BFloat16(row[j])));
      }
      store_part(row, cols, c, c_col);
    }
  }

  const P& p_;
  bool in_place_;
  int64_t high_, depth_, wide_;
  BFloat16 *a_, *b_;
  float* sums_;
};

/// In cycles of a step: four tile products of 16, and packing squares.
constexpr Costs costs(bool a_in_place) {
  return {
      .rows = side, .cols = side, .tile = 64, .pack_rows = a_in_place ? 8 : 100, .pack_cols = 80};
}
constexpr int64_t work_of_a_thread = 1 << 22;  // multiply-adds; starting a team costs microseconds

template <class C> void products(const Matmul& p) {
  if (p.c.numel() == 0) return;
  Product<BFloat16, C> one = product<BFloat16, C>(p, 0);
  int64_t batches = p.c.numel() / (one.m * one.n);
  int64_t threads = fn::min<int64_t>(omp_get_max_threads(),
                                     batches * one.m * one.n * one.k / work_of_a_thread + 1);
  bool whole = batches % threads == 0 || batches >= 4 * threads;
  Cut pieces = whole ? Cut{} : cut(one.m, one.n, threads, costs(Worker<C>::a_in_place(one)));
  int64_t each = round_up(Worker<C>::room(one), 64);
  Scratch<char> scratch(threads * each);
  char* room = scratch.data();
#pragma omp parallel num_threads(int(threads))
  {
    Tiles tiles;
    for (int64_t task = omp_get_thread_num(); task < batches * pieces.rows * pieces.cols;
         task += omp_get_num_threads()) {
      Product<BFloat16, C> x = product<BFloat16, C>(p, task / (pieces.rows * pieces.cols));
      Span rows(x.m, side, pieces.rows, task / pieces.cols % pieces.rows);
      Worker<C> worker(x, rows.end - rows.begin, room + each * omp_get_thread_num());
      Span cols(x.n, side, pieces.cols, task % pieces.cols);
      worker.make({rows.begin, cols.begin, rows.end - rows.begin, cols.end - cols.begin});
    }
  }
}

}  // namespace

void Amx::matmul(const Matmul& p) {
  if (p.a.dtype() != bf16 || p.goes_back()) return Cpu::matmul(p);
  if (p.c.dtype() == bf16) products<BFloat16>(p);
  else products<float>(p);
}

}  // namespace triax::host::TRIAX_LEVEL
