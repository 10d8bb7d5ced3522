#include <unistd.h>

#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/products/products.h"
#include "triax/core/cpu/products/row_product.h"
#include "triax/core/cpu/scratch.h"
#include "triax/core/functors/gelu.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// Returns the columns packed at once: they stay in the second-level cache while rows pass by.
template <class A> int64_t columns_at_once() {
  long level2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  int64_t panel_bytes = Tile<A>::depth * Tile<A>::cols * int64_t(sizeof(A));
  int64_t panels = (level2 > 0 ? level2 : 1 << 19) * 5 / 8 / panel_bytes;
  return (panels > 1 ? panels : 1) * Tile<A>::cols;
}

/// Writes a block of c from `sums`, rows of `cols`: plus old c (`add`) and bias, then times gelu's
/// slope, or gelu; rounded once, with gelu twice. Overwrites `sums`.
template <int cols, class T, class C, class A>
void finish(const Product<T, C>& p, const Block& at, bool add, A* sums) {
  for (int64_t i = 0; i < at.rows; ++i, sums += cols) {
    int64_t r = at.row + i;
    C* c = p.c + r * p.c_row + at.col * p.c_col;
    if (add)
      for (int64_t j = 0; j < at.cols; ++j) sums[j] += A(c[j * p.c_col]);
    if (p.bias) {
      const T* bias = p.bias + r * p.bias_row + at.col * p.bias_col;
      for (int64_t j = 0; j < at.cols; ++j) sums[j] += A(bias[j * p.bias_col]);
    }
    if (p.gelu_of) {
      const T* x = p.gelu_of + r * p.before_row + at.col * p.before_col;
      A at_x[cols] = {};
      for (int64_t j = 0; j < at.cols; ++j) at_x[j] = A(x[j * p.before_col]);
      for (int j = 0; j < cols; ++j) sums[j] *= functors::Gelu::slope(at_x[j], A(0));
    }
    if (p.before) {
      T* before = p.before + r * p.before_row + at.col * p.before_col;
      for (int64_t j = 0; j < at.cols; ++j) before[j * p.before_col] = T(sums[j]);
      // Taken of the rounded sums that are kept, so that gelu(before) gives these bits again.
      for (int j = 0; j < cols; ++j) sums[j] = functors::Gelu::forward(A(T(sums[j])));
    }
    for (int64_t j = 0; j < at.cols; ++j) c[j * p.c_col] = C(sums[j]);
  }
}

/// Makes blocks of c, on one thread. While tiles are multiplied, what is packed next is prefetched:
/// the next rows, and columns while they are packed, beside the first rows.
template <class T, class C> class Worker {
 public:
  using A = Accumulator<T>;
  static constexpr int rows = Tile<A>::rows, cols = Tile<A>::cols;

  /// True if sums between passes stand in c itself.
  static bool in_place(const Product<T, C>& p) { return __is_same(A, C) && p.c_col == 1; }

  /// Returns the elements of working memory for blocks of at most this size.
  static int64_t room(const Product<T, C>& p, int64_t block_rows, int64_t block_cols) {
    int64_t d = fn::min(p.k, Tile<A>::depth);
    int64_t sums = round_up(block_rows, rows) * round_up(block_cols, cols);
    return round_up(packed_size<A, rows>(together * rows, d), 16) +
           round_up(packed_size<A, cols>(block_cols, d), 16) + (p.k > d && !in_place(p) ? sums : 0);
  }

  /// `to`: working memory, 64-byte aligned.
  Worker(const Product<T, C>& p, A* to) : p_(p), in_place_(in_place(p)) {
    int64_t d = p.k < Tile<A>::depth ? p.k : Tile<A>::depth;
    a_ = to;
    b_ = a_ + round_up(packed_size<A, rows>(together * rows, d), 16);
  }

  void make(const Block& block) {
    int64_t first = 0;
    do pass(block, first);
    while ((first += Tile<A>::depth) < p_.k);
  }

 private:
  /// Adds the products of depth [first, first + Tile::depth).
  void pass(const Block& block, int64_t first) {
    depth_ = p_.k - first < Tile<A>::depth ? p_.k - first : Tile<A>::depth;
    first_ = first == 0;
    last_ = first + depth_ == p_.k;
    if (in_place_) {
      sums_ = reinterpret_cast<A*>(p_.c) + block.row * p_.c_row + block.col;
      stride_ = p_.c_row;
    } else {
      sums_ = b_ + round_up(packed_size<A, cols>(block.cols, Tile<A>::depth), 16);
      stride_ = round_up(block.cols, cols);
    }
    constexpr int64_t high = together * rows, wide = together * cols;
    for (int64_t i = 0; i < block.rows; i += high) {
      Block group{block.row + i, block.col, fn::min(high, block.rows - i), block.cols};
      A* sums = sums_ + i * stride_;
      pack<A, rows>(p_.a.at(group.row, first), group.rows, depth_, a_);
      next_rows_.start(p_.a.at(group.row + high, first), fn::min(high, block.rows - i - high),
                       depth_, pieces(group));
      if (i > 0) {
        tiles(group, b_, sums);
        continue;
      }
      for (int64_t j = 0; j < block.cols; j += wide) {
        Block part{group.row, block.col + j, group.rows, fn::min(wide, block.cols - j)};
        pack<A, cols>(p_.b.at(part.col, first), part.cols, depth_, b_ + j * depth_);
        next_cols_.start(p_.b.at(part.col + wide, first), fn::min(wide, block.cols - j - wide),
                         depth_, pieces(part));
        tiles(part, b_ + j * depth_, sums + j);
      }
    }
  }

  /// Returns the number of pieces of depth in which a block's tiles are multiplied.
  int64_t pieces(const Block& at) const {
    return (at.rows + rows - 1) / rows * ((at.cols + cols - 1) / cols) *
           ((depth_ + piece_depth - 1) / piece_depth);
  }

  /// Multiplies the tiles of a block, its rows packed at a_ and its columns at `b`.
  void tiles(const Block& at, const A* b, A* sums) {
    for (int64_t i = 0; i < at.rows; i += rows)
      for (int64_t j = 0; j < at.cols; j += cols)
        tile({at.row + i, at.col + j, fn::min<int64_t>(rows, at.rows - i),
              fn::min<int64_t>(cols, at.cols - j)},
             a_ + i * depth_, b + j * depth_, sums + i * stride_ + j);
  }

  void tile(const Block& at, const A* a, const A* b, A* sums) {
    bool whole = at.rows == rows && at.cols == cols;
    Write write = !first_ || (in_place_ && p_.write == Write::add) ? Write::add : Write::set;
    if (in_place_)
      for (int64_t r = 0; r < at.rows; ++r) __builtin_prefetch(sums + r * stride_, 1);
    Sums<A> s = multiply<A>(a, b, depth_, [this] {
      next_cols_.advance();
      next_rows_.advance();
    });
    bool plain = in_place_ ? whole && !(last_ && p_.goes_on()) : !last_;
    if (plain) {
      put<A>(s, sums, stride_, write);
      return;
    }
    alignas(64) A part[rows * cols];
    put<A>(s, part, cols, Write::set);
    if (write == Write::add)
      for (int64_t i = 0; i < at.rows; ++i)
        for (int64_t j = 0; j < at.cols; ++j) part[i * cols + j] += sums[i * stride_ + j];
    if (last_) {
      finish<cols>(p_, at, !in_place_ && p_.write == Write::add, part);
      return;
    }
    for (int64_t i = 0; i < at.rows; ++i)
      for (int64_t j = 0; j < at.cols; ++j) sums[i * stride_ + j] = part[i * cols + j];
  }

  const Product<T, C>& p_;
  bool in_place_, first_ = false, last_ = false;
  int64_t depth_ = 0, stride_ = 0;
  A *a_, *b_, *sums_ = nullptr;
  Fetcher<T> next_rows_, next_cols_;
};

/// Returns costs in quarters of a cycle: a tile takes two products a cycle for its rows, packing a
/// quarter of a cycle for each element.
template <class A> constexpr Costs costs() {
  constexpr int64_t rows = Tile<A>::rows, cols = Tile<A>::cols;
  return {rows, cols, 4 * rows, rows, cols};
}

constexpr int64_t work_of_a_thread = 1 << 20;  // multiply-adds; starting a team costs microseconds

/// Computes columns [begin, end) of c, a product of one row `x`, as `widen` leaves it.
template <class T, class C, class A>
void multiply_row(const Product<T, C>& p, const A* x, int64_t begin, int64_t end) {
  constexpr int n = lanes<A>;
  for (int64_t j = begin; j < end; j += n) {
    alignas(64) A sums[n];
    int64_t count = fn::min<int64_t>(n, end - j);
    store<A>(sums, multiply_columns<A>(x, p.b.at(j, 0), count, p.k));
    finish<n>(p, {0, j, 1, count}, p.write == Write::add, sums);
  }
}

/// Computes a batch of products of one row, reading b in place.
template <class T, class C> void row_products(const Matmul& p, int64_t batches) {
  using A = Accumulator<T>;
  constexpr int64_t work_of_a_piece = 1 << 18;  // memory is waited for, not the multiplier
  for (int64_t i = 0; i < batches; ++i) {
    Product<T, C> one = product<T, C>(p, i);
    Scratch<A> scratch(whole_vectors<A>(one.k));
    const A* x = scratch.data();
    widen(one.a.data, one.a.inner, one.k, scratch.data());
    int64_t grain = round_up(work_of_a_piece / (one.k + 1) + 1, lanes<A>);
    parallel_for(one.n, grain,
                 [=](int64_t begin, int64_t end) { multiply_row(one, x, begin, end); });
  }
}

/// The ways to multiply: one row has a way of its own.
enum class Way { any, of_many };

template <class T, class C> void products(const Matmul& p, Way way = Way::any) {
  using A = Accumulator<T>;
  if (p.c.numel() == 0) return;
  Product<T, C> one = product<T, C>(p, 0);
  int64_t batches = p.c.numel() / (one.m * one.n);
  if (way == Way::any && one.m == 1 && one.b.inner == 1) return row_products<T, C>(p, batches);
  int64_t threads =
      fn::min<int64_t>(threads_here(), batches * one.m * one.n * one.k / work_of_a_thread + 1);
  bool whole = batches % threads == 0 || batches >= 4 * threads;
  Cut pieces = whole ? Cut{} : cut(one.m, one.n, threads, costs<A>());
  // Sums in working memory are bounded, at the price of packing b again.
  int64_t tallest =
      Worker<T, C>::in_place(one) ? one.m : fn::min<int64_t>(one.m, 64 * Tile<A>::rows);
  int64_t widest = fn::min(round_up(one.n, Tile<A>::cols), columns_at_once<A>());
  int64_t each = round_up(Worker<T, C>::room(one, tallest, widest), 16);
  Scratch<A> scratch(threads * each);
  A* room = scratch.data();
  int64_t tasks = batches * pieces.rows * pieces.cols;
  in_turns(tasks, threads, [&](int64_t task, int64_t share) {
    Product<T, C> x = product<T, C>(p, task / (pieces.rows * pieces.cols));
    Worker<T, C> worker(x, room + each * share);
    Span rows(x.m, Tile<A>::rows, pieces.rows, task / pieces.cols % pieces.rows);
    Span cols(x.n, Tile<A>::cols, pieces.cols, task % pieces.cols);
    int64_t high = (rows.end - rows.begin + tallest - 1) / tallest;
    int64_t parts = (cols.end - cols.begin + widest - 1) / widest;
    for (int64_t i = 0; i < parts * high; ++i) {
      Span col(cols.end - cols.begin, Tile<A>::cols, parts, i / high);
      Span row(rows.end - rows.begin, Tile<A>::rows, high, i % high);
      worker.make({rows.begin + row.begin, cols.begin + col.begin, row.end - row.begin,
                   col.end - col.begin});
    }
  });
}

}  // namespace

void Cpu::matmul(const Matmul& p) {
  if (p.rounding)
    return round_product(*this, p, [](const Matmul& parts) {
      visit_float(parts.a.dtype(),
                  [&]<class T>() { products<T, Accumulator<T>>(parts, Way::of_many); });
    });
  if (takes_steps(p)) return matmul_in_steps(*this, p);
  visit_float(p.a.dtype(), [&]<class T>() {
    if (p.c.dtype() == p.a.dtype()) products<T, T>(p);
    else products<T, Accumulator<T>>(p);
  });
}

}  // namespace triax::host::TRIAX_LEVEL
