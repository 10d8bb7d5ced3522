#pragma once
#include "core/convert.h"
#include "core/cpu/gemm.h"

// What forward and backward of causal attention share. A block of queries (one tile's columns)
// meets the keys it may see. Scores are kept transposed, [key][query]: that is how the micro-kernel
// takes its right operand, and everything a softmax does to a query's scores goes on in vector
// lanes.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// One head of one sequence.
template <class T> struct Head {
  using A = Accumulator<T>;
  const T *q, *k, *v;         // [time, dim], rows `stride` apart
  int64_t time, dim, stride;  //
  int64_t heads, head;
  int64_t token, column;  // of row 0 in the tensor; of key 0 in the mask
  random::Mask mask;
  A scale;

  Head(const Attention& a, int64_t width, int64_t sequence, int64_t at)
      : time(a.time),
        dim(a.head_dim),
        stride(width),
        heads(width / (3 * dim)),
        head(at),
        token(sequence * time),
        column(head * time),
        mask(a.mask),
        scale(A(1) / fn::sqrt(A(dim))) {
    q = static_cast<const T*>(a.qkv.data()) + token * stride + head * 3 * dim;
    k = q + dim;
    v = k + dim;
  }
  /// Offset of this head in y [tokens, heads * dim], and from row to row.
  int64_t y_offset() const { return token * y_stride() + head * dim; }
  int64_t y_stride() const { return heads * dim; }
};

/// Offsets of a kernel's working arrays in one piece of memory.
struct Layout {
  int64_t end = 0;
  int64_t take(int64_t n) {
    int64_t at = end;
    end += round_up(n, 64);
    return at;
  }
};

/// Dropout factors of one block of queries, key by key: four neighbouring keys share Philox calls.
template <class A> class Factors {
 public:
  static constexpr int n = Tile<A>::cols;
  Factors(const random::Mask& mask, int64_t row, int64_t column)
      : mask_(mask), row_(uint64_t(mask.row + row)), column_(uint64_t(mask.column + column)) {}
  bool any() const { return mask_.p > 0; }

  /// factor[query] = what mask.at gives for this key.
  void of_key(int64_t key, A (&factor)[n]) {
    uint64_t column = column_ + uint64_t(key);
    if (column / 4 != group_) draw(column / 4);
    float p = mask_.p, kept = 1.f / (1.f - p);
    const uint32_t* words = words_[column % 4];
    for (int l = 0; l < n; ++l) factor[l] = fn::select(random::unit(words[l]) < p, A(0), A(kept));
  }

 private:
  void draw(uint64_t group) {
    group_ = group;
    uint64_t key = mask_.key, row = row_;
#pragma omp simd
    for (uint64_t l = 0; l < n; ++l) {
      random::Words w = random::philox(key, row + l, group);
      words_[0][l] = w.x;
      words_[1][l] = w.y;
      words_[2][l] = w.z;
      words_[3][l] = w.w;
    }
  }

  random::Mask mask_;
  uint64_t row_, column_, group_ = ~uint64_t{0};
  uint32_t words_[4][n];
};

/// to [ceil(count / tile rows)][tile rows][tile columns] = a b over `depth`; a packed with panels
/// `panel_depth` deep.
template <class A>
void multiply_panels(const A* a, int64_t count, int64_t panel_depth, const A* b, int64_t depth,
                     A* to) {
  constexpr int rows = Tile<A>::rows, cols = Tile<A>::cols;
  for (int64_t i = 0; i < count; i += rows)
    put<A>(multiply<A>(a + i * panel_depth, b, depth), to + i * cols, cols, Write::set);
}

/// to[query][i] = from[i][query] * factor[query]: dims [0, dim) of a block of queries.
template <class T, class A = Accumulator<T>>
void write_queries(const A* from, int64_t dim, int64_t queries, const A* factor, T* to,
                   int64_t stride) {
  constexpr int n = lanes<A>, cols = Tile<A>::cols;
  for (int64_t d = 0; d < dim; d += n)
    for (int64_t q = 0; q < queries; q += n) {
      alignas(64) A square[n * n];
      Vector<A> rows[n];
      int64_t height = fn::min<int64_t>(n, dim - d), width = fn::min<int64_t>(n, queries - q);
      if (height == n) {
#pragma GCC unroll 16
        for (int i = 0; i < n; ++i) rows[i] = load<A>(from + (d + i) * cols + q);
        transpose<A>(rows);
#pragma GCC unroll 16
        for (int i = 0; i < n; ++i) store<A>(square + i * n, rows[i]);
      } else {
        for (int i = 0; i < n; ++i)
          for (int l = 0; l < n; ++l)
            square[i * n + l] = l < height ? from[(d + l) * cols + q + i] : A(0);
      }
      for (int64_t i = 0; i < width; ++i) {
        T* row = to + (q + i) * stride + d;
        for (int64_t l = 0; l < height; ++l) row[l] = convert<T>(square[i * n + l] * factor[q + i]);
      }
    }
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
