#pragma once
#include "triax/core/cpu/vector.h"
#include "triax/core/numbers/math.h"

// The matrix product all products are made of (after Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication", 2008): operands are packed into panels that the
// micro-kernel reads front to back, and a tile of c stays in registers over the whole depth.
// Packing converts to the accumulator's type and takes any strides, so transposes cost nothing
// more.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// A tile of c: `rows` x `cols` fills the registers but those for operands.
template <class A> struct Tile {
#if defined(__AVX512F__)
  static constexpr int rows = 14;
#elif defined(__AVX2__)
  static constexpr int rows = 6;
#else
  static constexpr int rows = 4;
#endif
  static constexpr int cols = 2 * lanes<A>;
  /// Depth of one pass, whatever the shapes: it fixes the order of sums.
  static constexpr int64_t depth = 1536 / sizeof(A);
};

/// a (rows i) or b (columns i) of a product: element (i, k) at data[i * outer + k * inner].
template <class T> struct Operand {
  const T* data;
  int64_t outer, inner;
  Operand at(int64_t i, int64_t k) const { return {data + i * outer + k * inner, outer, inner}; }
};

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
/// Elements of a packed operand of `count` rows or columns. Transposing writes whole vectors, past
/// the last panel's end.
template <class A, int panel> constexpr int64_t packed_size(int64_t count, int64_t depth) {
  return round_up(count, panel) * depth + lanes<A>;
}

template <class A, int panel, class T>
void pack_scalar(Operand<T> x, int64_t count, int64_t depth, A* to) {
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t i = 0; i < panel; ++i)
      to[k * panel + i] = i < count ? A(x.data[i * x.outer + k * x.inner]) : A(0);
}

/// Packs rows of unit stride: copies over `panels` neighbouring panels, since each k may be a page
/// away. For the same reason no hardware prefetcher sees what comes.
template <class A, int panel, class T>
void pack_rows(Operand<T> x, int64_t panels, int64_t depth, A* to) {
  constexpr int whole = panel / lanes<A> * lanes<A>;
  for (int64_t k = 0; k < depth; ++k, to += panel) {
    const T* from = x.data + k * x.inner;
    for (int64_t i = 0; i < panels * panel; i += int64_t(64 / sizeof(T)))
      __builtin_prefetch(from + 8 * x.inner + i);
    for (int64_t p = 0; p < panels; ++p, from += panel) {
      A* at = to + p * panel * depth;
      for (int i = 0; i < whole; i += lanes<A>) store<A>(at + i, load<A>(from + i));
      if constexpr (__is_same(A, T))
        __builtin_memcpy(at + whole, from + whole, (panel - whole) * sizeof(A));
      else
        for (int i = whole; i < panel; ++i) at[i] = A(from[i]);
    }
  }
}

/// Packs a unit stride over depth: squares are transposed in registers.
template <class A, int panel, class T> void pack_transposed(Operand<T> x, int64_t depth, A* to) {
  constexpr int n = lanes<A>;
  int64_t squares = depth / n * n;
  for (int64_t k = 0; k < squares; k += n)
    // The last square may reach past the panel, over the start of the next k: it goes first, and
    // what it spoils is written after it.
    for (int i = (panel - 1) / n * n; i >= 0; i -= n) {
      Vector<A> rows[n];
#pragma GCC unroll 16
      for (int r = 0; r < n; ++r) {
        if (i + r < panel) __builtin_prefetch(x.data + (i + r) * x.outer + k + 8 * n);
        rows[r] = i + r < panel ? load<A>(x.data + (i + r) * x.outer + k) : Vector<A>{};
      }
      transpose<A>(rows);
#pragma GCC unroll 16
      for (int r = 0; r < n; ++r) store<A>(to + (k + r) * panel + i, rows[r]);
    }
  pack_scalar<A, panel>(x.at(0, squares), panel, depth - squares, to + squares * panel);
}

/// The number of panels packed and used together.
constexpr int64_t together = 4;

/// Packs `count` rows into panels of `panel`, each [depth][panel], the last filled up with zeros.
template <class A, int panel, class T>
void pack(Operand<T> x, int64_t count, int64_t depth, A* to) {
  int64_t whole = count / panel;
  if (x.outer == 1) {
    for (int64_t p = 0; p < whole; p += together)
      pack_rows<A, panel>(x.at(p * panel, 0), fn::min(together, whole - p), depth,
                          to + p * panel * depth);
  } else {
    for (int64_t p = 0; p < whole; ++p) {
      if (x.inner == 1)
        pack_transposed<A, panel>(x.at(p * panel, 0), depth, to + p * panel * depth);
      else pack_scalar<A, panel>(x.at(p * panel, 0), panel, depth, to + p * panel * depth);
    }
  }
  if (whole * panel < count)
    pack_scalar<A, panel>(x.at(whole * panel, 0), count - whole * panel, depth,
                          to + whole * panel * depth);
}

/// Prefetches part of an operand to the second-level cache, a few lines at a time.
template <class T> class Fetcher {
 public:
  /// Starts on `count` rows of a or columns of b, `depth` deep, to be done by `calls` of advance().
  /// Does nothing without a unit stride.
  void start(Operand<T> x, int64_t count, int64_t depth, int64_t calls) {
    bool along_depth = x.inner == 1;
    row_ = x.data, stride_ = along_depth ? x.outer : x.inner, at_ = 0;
    rows_ = along_depth ? count : depth, length_ = along_depth ? depth : count;
    if (length_ <= 0 || (x.inner != 1 && x.outer != 1)) rows_ = 0;
    if (!done()) pace_ = (rows_ * ((length_ + line - 1) / line) + calls - 1) / calls;
  }
  bool done() const { return rows_ <= 0; }
  TRIAX_HD void advance() {
    constexpr int read = 0, second_level = 2;
    for (int64_t lines = pace_; lines > 0 && !done(); --lines) {
      __builtin_prefetch(row_ + at_, read, second_level);
      at_ += line;
      if (at_ >= length_) at_ = 0, row_ += stride_, --rows_;
    }
  }

 private:
  static constexpr int64_t line = 64 / int64_t(sizeof(T));
  const T* row_ = nullptr;
  int64_t stride_ = 0, length_ = 0, rows_ = 0, at_ = 0, pace_ = 0;
};

/// A tile of sums, in registers.
template <class A> struct Sums { Vector<A> c[Tile<A>::rows][2]; };

/// The depth of the pieces in which panels are multiplied.
constexpr int64_t piece_depth = 192;

/// The work done meanwhile by default: none.
struct Nothing {
  TRIAX_HD void operator()() const {}
};

/// Calls meanwhile() after every piece.
template <class A, class F = Nothing>
TRIAX_HD Sums<A> multiply(const A* a, const A* b, int64_t depth, F meanwhile = {}) {
  constexpr int rows = Tile<A>::rows, cols = Tile<A>::cols;
  Sums<A> s;
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) s.c[i][0] = s.c[i][1] = Vector<A>{};
  for (; depth > 0; depth -= piece_depth) {
    int64_t piece = depth < piece_depth ? depth : piece_depth;
#pragma GCC unroll 4
    for (int64_t k = 0; k < piece; ++k) {
      Vector<A> b0 = load<A>(b), b1 = load<A>(b + cols / 2);
      __builtin_prefetch(b + 16 * cols);
      __builtin_prefetch(b + 16 * cols + cols / 2);
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) {
        Vector<A> x = broadcast(a + i);
        s.c[i][0] = fma(x, b0, s.c[i][0]);
        s.c[i][1] = fma(x, b1, s.c[i][1]);
      }
      a += rows;
      b += cols;
    }
    meanwhile();
  }
  return s;
}

/// to[i][j] = or += the tile; whole tiles, rows `stride` apart.
template <class A> TRIAX_HD void put(const Sums<A>& s, A* to, int64_t stride, Write write) {
  constexpr int rows = Tile<A>::rows;
  if (write == Write::set) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      store<A>(to + i * stride, s.c[i][0]);
      store<A>(to + i * stride + lanes<A>, s.c[i][1]);
    }
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      A* row = to + i * stride;
      store<A>(row, load<A>(row) + s.c[i][0]);
      store<A>(row + lanes<A>, load<A>(row + lanes<A>) + s.c[i][1]);
    }
  }
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
