#include <omp.h>

#include "core/cpu/amx.h"
#include "core/cpu/convert.h"
#include "core/cpu/products.h"
#include "core/cpu/scratch.h"
#include "core/cpu/tiles.h"

// Products of bf16. Strips of b (32 columns) are packed one at a time and stay in the first-level
// cache while the strips of a block of rows, in the second, pass by. A sum of f32 is what it was
// after a tile was put down and taken up again, so cuts in depth, like all others, change no bit.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Depth of one pass: a strip of b is half of the first-level cache.
constexpr int64_t pass_depth = 384;
/// Rows packed at once, and columns whose sums wait for the next pass, in the second-level cache.
constexpr int64_t block_rows = 512, block_cols = 512;

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

  /// Bytes of working memory.
  static int64_t room(const P& p) {
    int64_t depth = depth_of(p), cols = p.k > depth ? block_cols : side;
    return 2 * (strips_size(block_rows, depth) + strips_size(side, depth)) +
           4 * (p.k > depth ? block_rows : side) * cols;
  }

  Worker(const P& p, char* memory) : p_(p), depth_(depth_of(p)) {
    a_ = reinterpret_cast<BFloat16*>(memory);
    b_ = a_ + strips_size(block_rows, depth_);
    sums_ = reinterpret_cast<float*>(b_ + strips_size(side, depth_));
    stride_ = p.k > depth_ ? block_cols : side;
  }

  void make(const Block& piece) {
    int64_t cols = p_.k > depth_ ? block_cols : piece.cols;
    for (int64_t i = 0; i < piece.rows; i += block_rows)
      for (int64_t j = 0; j < piece.cols; j += cols)
        make_block({piece.row + i, piece.col + j, fn::min(block_rows, piece.rows - i),
                    fn::min(cols, piece.cols - j)});
  }

 private:
  /// Even passes, whole steps.
  static int64_t depth_of(const P& p) {
    int64_t passes = p.k > pass_depth ? (p.k + pass_depth - 1) / pass_depth : 1;
    return round_up((p.k + passes - 1) / passes, side);
  }

  void make_block(const Block& block) {
    int64_t first = 0;
    do {
      int64_t depth = fn::min(depth_, p_.k - first), steps = (depth + side - 1) / side;
      pack_strips<Part::left>(p_.a.at(block.row, first), block.rows, depth, a_);
      for (int64_t j = 0; j < block.cols; j += side) {
        int64_t width = fn::min<int64_t>(side, block.cols - j);
        pack_strips<Part::right>(p_.b.at(block.col + j, first), width, depth, b_);
        for (int64_t i = 0; i < block.rows; i += side)
          make_square({block.row + i, block.col + j, fn::min<int64_t>(side, block.rows - i), width},
                      a_ + i * steps * side, steps, first,
                      p_.k > depth_ ? sums_ + i * stride_ + j : sums_);
      }
    } while ((first += depth_) < p_.k);
  }

  /// Adds what the pass from depth `first` on gives.
  void make_square(const Block& at, const BFloat16* a, int64_t steps, int64_t first, float* sums) {
    bool last = first + depth_ >= p_.k;
    if constexpr (__is_same(C, float))
      if (at.rows == side && at.cols == side && p_.c_col == 1 && !p_.bias && !p_.before) {
        Write write = first > 0 ? Write::add : p_.write;
        multiply_strips(a, b_, steps, p_.c + at.row * p_.c_row + at.col, p_.c_row, write);
        return;
      }
    multiply_strips(a, b_, steps, sums, stride_, first > 0 ? Write::add : Write::set);
    if (last) finish(at, sums);
  }

  /// Old c, bias and gelu; rounded once.
  void finish(const Block& at, const float* sums) {
    float old[side], bias[side];
    if (p_.bias && p_.bias_row == 0)
      load_part(p_.bias + at.col * p_.bias_col, p_.bias_col, at.cols, bias);
    for (int64_t i = 0; i < at.rows; ++i, sums += stride_) {
      int64_t r = at.row + i;
      C* c = p_.c + r * p_.c_row + at.col * p_.c_col;
      float row[side];
      for (int j = 0; j < side; ++j) row[j] = sums[j];
      if (p_.write == Write::add) {
        load_part(c, p_.c_col, at.cols, old);
        for (int64_t j = 0; j < at.cols; ++j) row[j] += old[j];
      }
      if (p_.bias) {
        if (p_.bias_row != 0)
          load_part(p_.bias + r * p_.bias_row + at.col * p_.bias_col, p_.bias_col, at.cols, bias);
        for (int64_t j = 0; j < at.cols; ++j) row[j] += bias[j];
      }
      if (p_.before) {
        BFloat16* before = p_.before + r * p_.before_row + at.col * p_.before_col;
        store_part(row, at.cols, before, p_.before_col);
        for (int j = 0; j < side; ++j) row[j] = functors::Gelu::forward(row[j]);
      }
      store_part(row, at.cols, c, p_.c_col);
    }
  }

  const P& p_;
  int64_t depth_, stride_;
  BFloat16 *a_, *b_;
  float* sums_;
};

/// In cycles of a step: four tile products of 16, and packing squares, mostly turned ones.
constexpr Costs costs{.rows = side, .cols = side, .tile = 64, .pack_rows = 100, .pack_cols = 130};
constexpr int64_t work_of_a_thread = 1 << 22;  // multiply-adds; starting a team costs microseconds

template <class C> void products(const Matmul& p) {
  if (p.c.numel() == 0) return;
  Product<BFloat16, C> one = product<BFloat16, C>(p, 0);
  int64_t batches = p.c.numel() / (one.m * one.n);
  int64_t threads = fn::min<int64_t>(omp_get_max_threads(),
                                     batches * one.m * one.n * one.k / work_of_a_thread + 1);
  bool whole = batches % threads == 0 || batches >= 4 * threads;
  Cut pieces = whole ? Cut{} : cut(one.m, one.n, threads, costs);
  int64_t each = round_up(Worker<C>::room(one), 64);
  Scratch<char> scratch(threads * each);
  char* room = scratch.data();
#pragma omp parallel num_threads(int(threads))
  {
    Tiles tiles;
    for (int64_t task = omp_get_thread_num(); task < batches * pieces.rows * pieces.cols;
         task += omp_get_num_threads()) {
      Product<BFloat16, C> x = product<BFloat16, C>(p, task / (pieces.rows * pieces.cols));
      Worker<C> worker(x, room + each * omp_get_thread_num());
      Span rows(x.m, side, pieces.rows, task / pieces.cols % pieces.rows);
      Span cols(x.n, side, pieces.cols, task % pieces.cols);
      worker.make({rows.begin, cols.begin, rows.end - rows.begin, cols.end - cols.begin});
    }
  }
}

}  // namespace

void Amx::matmul(const Matmul& p) {
  if (p.a.dtype() != bf16) return Cpu::matmul(p);
  if (p.c.dtype() == bf16) products<BFloat16>(p);
  else products<float>(p);
}

}  // namespace triax::host::TRIAX_LEVEL
