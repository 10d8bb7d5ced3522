#pragma once
#include "triax/core/cpu/products/gemm.h"
#include "triax/core/shared/attention.h"
#include "triax/core/shared/convert.h"

// Shared code of forward and backward. A block of queries (one tile's columns) meets the keys that
// any of them sees. Scores are kept transposed, [key][query]: that is how the micro-kernel takes
// its right operand, and everything a softmax does to a query's scores goes on in vector lanes.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// The rows of one head of one sequence in a tensor [tokens, kv_heads, group, dim].
template <class T> struct Rows {
  T* data;
  int64_t stride;

  /// Begins at `token`, in the head numbered kv_head * group + its place in the group.
  Rows(const Tensor& x, int64_t token, int64_t head) : stride(x.strides()[0]) {
    int64_t group = x.size(2);
    data = values<T>(x) + token * stride + head / group * x.strides()[1] +
           head % group * x.strides()[2];
  }
  T* at(int64_t row) const { return data + row * stride; }
  /// Return operands of a product: rows along dim, and dims along rows.
  Operand<T> by_row(int64_t row = 0) const { return {at(row), stride, 1}; }
  Operand<T> by_dim(int64_t row = 0) const { return {at(row), 1, stride}; }
};

/// One query head of one sequence.
template <class T> struct Head {
  using A = Accumulator<T>;
  Band band;
  int64_t time, dim, heads, head;
  int64_t token, key_token;  // of row 0 in the tensors
  Rows<T> q, k, v;
  int64_t q_step;     // from one head of a group to the next
  random::Mask mask;  // of query 0 and key 0
  int64_t mask_step;  // from one head to the next
  A scale;

  /// `number` counts query heads, and these in sequences.
  Head(const Attention& a, int64_t number)
      : band(a.band),
        time(a.time),
        dim(a.head_dim()),
        heads(a.heads()),
        head(number % heads),
        token(number / heads * time),
        key_token(number / heads * band.keys),
        q(a.in.q, token, head),
        k(a.in.k, key_token, head / a.group()),
        v(a.in.v, key_token, head / a.group()),
        q_step(a.in.q.strides()[2]),
        mask(a.mask),
        mask_step(a.keys_of_mask()),
        scale(A(1) / fn::sqrt(A(dim))) {
    mask.row += token;
    mask.column += head * mask_step;
  }
  /// Returns the head `i` places further in the same group.
  Head further(int64_t i) const {
    Head h = *this;
    h.head += i;
    h.q.data += i * q_step;
    h.mask.column += i * mask_step;
    return h;
  }
  /// Returns the offset of query `row` in lse [tokens, heads]; times dim, that in y.
  int64_t place(int64_t row) const { return (token + row) * heads + head; }
  int64_t y_stride() const { return heads * dim; }
};

/// The cut of forward among threads: a task is a key-value head or, with few of them, every
/// `parts`-th block of its group's queries, for which a thread packs keys and values again.
struct Tasks {
  int64_t blocks, of_group;  // of queries: of a head, of all heads that read one key
  int64_t parts, count;
  Tasks(const Attention& a, int64_t queries, int64_t threads)
      : blocks((a.time + queries - 1) / queries), of_group(blocks * a.group()) {
    count = a.sequences() * a.kv_heads();
    bool whole = count % threads == 0 || count > 4 * threads;
    parts = whole ? 1 : fn::min(of_group, (4 * threads + count - 1) / count);
    count *= parts;
  }
};

/// Queries [first, first + count) and the keys [begin, end) that any of them sees.
struct Block {
  int64_t first, count, begin, end;
  /// Takes `queries` from `at` on, as far as there are any; `begin` is a multiple of `keys`.
  template <class T>
  Block(const Head<T>& h, int64_t at, int64_t queries, int64_t keys)
      : first(at),
        count(fn::min(queries, h.time - at)),
        begin(h.band.begin(at) / keys * keys),
        end(h.band.end(at + count - 1)) {}
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
  /// Takes queries from `first` on; `mask` is that of a head.
  Factors(const random::Mask& mask, int64_t first)
      : mask_(mask), row_(uint64_t(mask.row + first)), column_(uint64_t(mask.column)) {}
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

/// Sets scores [key][query] of keys [block.begin, end) to -infinity where the key is not seen.
template <class A> void hide(const Band& band, const Block& block, int64_t end, A* scores) {
  constexpr int n = Tile<A>::cols;
  int seen_from[n], seen_to[n];
  for (int l = 0; l < n; ++l) {
    seen_from[l] = int(band.begin(block.first + l) - block.begin);
    seen_to[l] = int(band.end(block.first + l) - block.begin);
  }
  auto hide_keys = [&](int from, int to) {
    for (int j = from; j < to; ++j)
      for (int l = 0; l < n; ++l)
        scores[j * n + l] = fn::select(j >= seen_from[l] && j < seen_to[l], scores[j * n + l],
                                       -A(__builtin_inff()));
  };
  int keys = int(end - block.begin);  // all queries see those between
  hide_keys(0, fn::min(seen_from[n - 1], keys));
  hide_keys(fn::max(seen_to[0], 0), keys);
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
