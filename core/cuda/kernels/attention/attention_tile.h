#pragma once
#include "triax/core/cuda/kernels/convert.h"
#include "triax/core/cuda/kernels/pack.h"
#include "triax/core/cuda/kernels/reduce_block.h"
#include "triax/core/numbers/math.h"
#include "triax/core/random.h"
#include "triax/core/shared/attention.h"

// Shared code of attention's kernels. A block of 16 x 16 threads works on square tiles of scores: a
// thread makes those of `each` neighbouring rows with every 16th column, and of the products of
// these scores with another tile the same rows and every 16th pack of columns. So the state of a
// row stays within half a warp.

namespace triax::cuda::TRIAX_TARGET {

/// Sizes for heads up to `width` in the accumulator A.
template <class A_, int width_> struct AttentionTile {
  using A = A_;
  static constexpr int width = width_, across = 16, threads = across * across;
  static constexpr int size = 16 / int(sizeof(A));  // of a pack
  // Rows, of queries or of keys: as many as let four tiles lie in shared memory.
  static constexpr int fitting = (1 << 15) / (width * int(sizeof(A)));
  static constexpr int rows = fitting * int(sizeof(A)) < 256 ? fitting : 256 / int(sizeof(A));
  static constexpr int each = rows / across, columns = width / across;  // of a thread
  static_assert(each >= 1 && columns % size == 0);

  // Arrays in shared memory. With a pack more than needed, neighbouring rows start in other banks.
  using Vectors = A[rows][width + size];
  using Scores = A[rows][rows + size];
  using Kept = uint8_t[rows][rows / 4 + 4];
  // Registers of a thread.
  using Square = A[each][each];
  using Products = A[each][columns];

  TRIAX_HD static int lane(const Thread& t) { return t.id % across; }
  TRIAX_HD static int row(const Thread& t) { return t.id / across * each; }  ///< its first
};

/// Rows of one head of one sequence, of queries or of keys.
struct AttentionRows {
  int64_t token;  ///< where row `first` of the sequence lies in tensors
  int head, first, count;
};

/// A tensor [tokens, kv_heads, group, dim]. Query heads find their keys with head_stride 0.
template <class T> struct AttentionTensor {
  T* at;
  int64_t token_stride, kv_stride, head_stride;
};

/// The memory of rows in one tensor.
template <class T> struct AttentionMatrix {
  T* at;
  int64_t stride;
  int count;
};

/// The arguments that all attention kernels have.
template <class T> struct AttentionHeads {
  AttentionTensor<T> q, k, v;
  int64_t time, heads, group;  // heads: of queries
  Band band;
  int dim;
  bool packed;  // all rows of all tensors start at multiples of 16 bytes
  Accumulator<T> scale;
  random::Mask mask;
  int64_t mask_keys;     // Attention::keys_of_mask
  const int64_t* shift;  // of the mask's rows; null: none

  /// Returns rows [first, first + rows) of a head, as far as there are any. `head` counts query
  /// heads, and these in sequences.
  TRIAX_HD AttentionRows queries(int64_t head, int64_t first, int rows) const {
    return {head / heads * time + first, int(head % heads), int(first),
            int(fn::min<int64_t>(rows, time - first))};
  }
  TRIAX_HD AttentionRows keys(int64_t head, int64_t first, int rows) const {
    int64_t left = band.keys - first;
    return {head / heads * band.keys + first, int(head % heads), int(first),
            int(fn::min<int64_t>(rows, left))};
  }
  /// Returns the place of a query in a [tokens, heads] tensor.
  TRIAX_HD int64_t place(const AttentionRows& r, int row) const {
    return (r.token + row) * heads + r.head;
  }
  template <class U>
  TRIAX_HD AttentionMatrix<U> matrix(const AttentionTensor<U>& x, const AttentionRows& r) const {
    return {x.at + r.token * x.token_stride + r.head / group * x.kv_stride +
                r.head % group * x.head_stride,
            x.token_stride, r.count};
  }
  /// Returns the rows of a contiguous tensor [tokens, heads, dim].
  template <class U> TRIAX_HD AttentionMatrix<U> matrix(U* y, const AttentionRows& r) const {
    return {y + place(r, 0) * dim, heads * dim, r.count};
  }
};

/// The keys of one tile that the queries of another see; both count from their tile's first row.
struct AttentionSight {
  int low, high, keys;
  TRIAX_HD AttentionSight(const Band& band, const AttentionRows& queries,
                          const AttentionRows& those, int rows)
      : low(limit(queries.first - those.first + band.low, rows)),
        high(limit(queries.first - those.first + band.high, rows)),
        keys(those.count) {}
  TRIAX_HD bool sees(int query, int key) const {
    return key < keys && key >= query + low && key <= query + high;
  }
  /// True if all of `rows` queries see each of as many keys.
  TRIAX_HD bool sees_all(int rows) const {
    return keys == rows && low <= 1 - rows && high >= rows - 1;
  }

 private:
  TRIAX_HD static int limit(int64_t distance, int rows) {
    return int(fn::min<int64_t>(fn::max<int64_t>(distance, -rows), rows));
  }
};

/// tile = rows of `from`, and zeros behind the last row and column.
template <class Tile, class T, class U>
TRIAX_HD void load_tile(const Thread& t, const AttentionHeads<T>& heads,
                        const AttentionMatrix<U>& from, typename Tile::Vectors& tile) {
  using A = typename Tile::A;
  if (heads.packed) {
    constexpr int size = 16 / int(sizeof(T)), packs = Tile::width / size;
    constexpr int step = Tile::threads / packs;
    int column = t.id % packs * size;
    const T* at = from.at + t.id / packs * from.stride + column;
#pragma unroll 2
    for (int row = t.id / packs; row < Tile::rows; row += step, at += step * from.stride) {
      Pack<T, size> narrow;
      Pack<A, size> wide;
      bool there = row < from.count && column < heads.dim;
      if (there) narrow = load_pack<size>(at);
#pragma unroll
      for (int k = 0; k < size; ++k) wide.at[k] = there ? load(narrow.at[k]) : A(0);
      store_pack(&tile[row][column], wide);
    }
  } else {
#pragma unroll 1
    for (int i = t.id; i < Tile::rows * Tile::width; i += Tile::threads) {
      int row = i / Tile::width, column = i % Tile::width;
      bool there = row < from.count && column < heads.dim;
      tile[row][column] = there ? load(from.at[row * from.stride + column]) : A(0);
    }
  }
}

/// Stores the thread's rows and columns of `to`.
template <class Tile, class T>
TRIAX_HD void store_tile(const Thread& t, const AttentionHeads<T>& heads,
                         const typename Tile::Products& from, const AttentionMatrix<T>& to) {
  constexpr int size = Tile::size;
#pragma unroll
  for (int i = 0; i < Tile::each; ++i)
#pragma unroll
    for (int g = 0; g < Tile::columns; g += size) {
      int row = Tile::row(t) + i, column = g * Tile::across + Tile::lane(t) * size;
      if (row >= to.count || column >= heads.dim) continue;
      Pack<T, size> out;
#pragma unroll
      for (int k = 0; k < size; ++k) out.at[k] = convert<T>(from[i][g + k]);
      T* at = to.at + row * to.stride + column;
      if (heads.packed) {
        store_pack(at, out);
      } else {
#pragma unroll
        for (int k = 0; k < size; ++k)
          if (column + k < heads.dim) at[k] = out.at[k];
      }
    }
}

/// out[i][j] = a[the thread's row i] . b[its column j], of the first `dim` elements.
template <class Tile>
TRIAX_HD void multiply_rows(const Thread& t, int dim, const typename Tile::Vectors& a,
                            const typename Tile::Vectors& b, typename Tile::Square& out) {
  constexpr int size = Tile::size, each = Tile::each;
#pragma unroll
  for (int i = 0; i < each; ++i)
#pragma unroll
    for (int j = 0; j < each; ++j) out[i][j] = 0;
#pragma unroll 1
  for (int d = 0; d < dim; d += size) {
    Pack<typename Tile::A> left[each];
#pragma unroll
    for (int i = 0; i < each; ++i) left[i] = load_pack<size>(&a[Tile::row(t) + i][d]);
#pragma unroll
    for (int j = 0; j < each; ++j) {
      auto right = load_pack<size>(&b[Tile::lane(t) + Tile::across * j][d]);
#pragma unroll
      for (int k = 0; k < size; ++k)
#pragma unroll
        for (int i = 0; i < each; ++i) out[i][j] = fn::fma(left[i].at[k], right.at[k], out[i][j]);
    }
  }
}

/// out[i] += sum over rows k of b: scores[the thread's row i][k] * b[k], the thread's columns.
template <class Tile>
TRIAX_HD void add_products(const Thread& t, const typename Tile::Scores& scores,
                           const typename Tile::Vectors& b, typename Tile::Products& out) {
  constexpr int size = Tile::size;
#pragma unroll 1
  for (int row = 0; row < Tile::rows; row += size) {
    Pack<typename Tile::A> left[Tile::each];
#pragma unroll
    for (int i = 0; i < Tile::each; ++i) left[i] = load_pack<size>(&scores[Tile::row(t) + i][row]);
#pragma unroll
    for (int k = 0; k < size; ++k)
#pragma unroll
      for (int g = 0; g < Tile::columns; g += size) {
        auto right = load_pack<size>(&b[row + k][g * Tile::across + Tile::lane(t) * size]);
#pragma unroll
        for (int i = 0; i < Tile::each; ++i)
#pragma unroll
          for (int l = 0; l < size; ++l)
            out[i][g + l] = fn::fma(left[i].at[k], right.at[l], out[i][g + l]);
      }
  }
}

/// Stores the thread's scores in shared memory, for add_products() by its own half of a warp.
template <class Tile>
TRIAX_HD void share_scores(const Thread& t, const typename Tile::Square& from,
                           typename Tile::Scores& to) {
#pragma unroll
  for (int i = 0; i < Tile::each; ++i)
#pragma unroll
    for (int j = 0; j < Tile::each; ++j)
      to[Tile::row(t) + i][Tile::lane(t) + Tile::across * j] = from[i][j];
  t.sync_warp();
}

/// Reduces by op over the 16 threads that share rows; all of them get the result.
template <class A, class Op> TRIAX_HD A reduce_half_warp(const Thread& t, A value, Op op) {
#pragma unroll
  for (int mask = 8; mask > 0; mask /= 2) value = op(value, t.shuffle_xor(value, mask));
  return value;
}

/// The weights of one tile that dropout keeps: a bit for each, four to a Philox call and a byte.
template <class Tile, class T> class AttentionDropout {
 public:
  TRIAX_HD AttentionDropout(const AttentionHeads<T>& heads, const AttentionRows& queries,
                            const AttentionRows& keys)
      : mask_(heads.mask),
        row_(uint64_t(heads.mask.row + (heads.shift ? *heads.shift : 0) + queries.token)),
        column_(uint64_t(heads.mask.column + queries.head * heads.mask_keys + keys.first)) {}
  TRIAX_HD bool any() const { return mask_.p > 0; }

  /// Draws the bits; all threads must call it. After a sync() kept() may be read.
  TRIAX_HD void draw(const Thread& t, typename Tile::Kept& kept) const {
    constexpr int groups = Tile::rows / 4 + 1;
    if (!any()) return;
#pragma unroll 1
    for (int i = t.id; i < Tile::rows * groups; i += Tile::threads) {
      int row = i / groups, group = i % groups;
      random::Words w =
          random::philox(mask_.key, row_ + uint64_t(row), column_ / 4 + uint64_t(group));
      kept[row][group] = uint8_t(bit(w.x) | bit(w.y) << 1 | bit(w.z) << 2 | bit(w.w) << 3);
    }
  }
  /// Returns the factor of the weight of a tile's query and key.
  TRIAX_HD typename Tile::A factor(const typename Tile::Kept& kept, int query, int key) const {
    using A = typename Tile::A;
    if (!any()) return A(1);
    int at = key + int(column_ & 3);
    return kept[query][at / 4] >> (at & 3) & 1 ? A(1.f / (1.f - mask_.p)) : A(0);
  }

 private:
  TRIAX_HD int bit(uint32_t word) const { return random::unit(word) < mask_.p ? 0 : 1; }
  random::Mask mask_;
  uint64_t row_, column_;
};

}  // namespace triax::cuda::TRIAX_TARGET
