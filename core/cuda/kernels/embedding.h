#pragma once
#include "core/backend.h"
#include "core/cuda/row.h"
#include "core/indices.h"

namespace triax::cuda::TRIAX_TARGET {

/// y[i] = table[ids[i] - first], zeros where the table has no such row; a warp per token. T: an
/// unsigned integer as large as an element.
template <class T> struct EmbeddingForward {
  static constexpr int threads = 256, warps = threads / 32;
  Indices ids;
  const T* table;
  T* y;
  int64_t tokens, rows, width, first;
  bool packs;

  template <int size> TRIAX_HD void copy(const Thread& t, const T* from, T* to) const {
    for (int64_t c = t.lane() * size; c < width; c += 32 * size) {
      decltype(read_chunk<size>(from)) part = {};
      if (from) part = read_chunk<size>(from + c);
      write_chunk(to + c, part);
    }
  }
  TRIAX_HD void operator()(const Thread& t) const {
    int64_t i = t.block.x * warps + t.warp();
    if (i >= tokens) return;
    int64_t r = ids[i] - first;
    const T* from = r >= 0 && r < rows ? table + r * width : nullptr;
    if (packs) copy<pack_size<T>()>(t, from, y + i * width);
    else copy<1>(t, from, y + i * width);
  }
};

// The backward sums each row of the table in the order of its tokens. Keys, the row above the
// token, are sorted by merging; no two are equal, so there is one order only. Then a row's tokens
// stand side by side.

using Key = uint64_t;
TRIAX_HD Key key_of(int64_t row, int64_t token) { return Key(row) << 32 | Key(token); }
TRIAX_HD int64_t token_of(Key k) { return int64_t(k & 0xffffffffu); }

/// How many of the `n` sorted keys lie below `key`.
TRIAX_HD int64_t count_below(const Key* keys, int64_t n, Key key) {
  int64_t low = 0;
  while (n > 0) {
    int64_t half = n / 2;
    bool below = keys[low + half] < key;
    low = below ? low + half + 1 : low;
    n = below ? n - half - 1 : half;
  }
  return low;
}

/// Where the key at `i` comes when `ways` neighbouring sorted runs of `run` keys become one; the
/// last of the `n` keys may lack some.
constexpr int ways = 8;
TRIAX_HD int64_t merged_place(const Key* keys, int64_t n, int64_t run, int64_t i) {
  int64_t begin = i / (run * ways) * (run * ways), own = i / run * run, place = begin + (i - own);
#pragma unroll
  for (int w = 0; w < ways; ++w) {
    int64_t other = begin + w * run, length = fn::min(run, n - other);
    if (other != own && length > 0) place += count_below(keys + other, length, keys[i]);
  }
  return place;
}

/// keys of ids, sorted in tiles. Those that the table has no row for come last.
struct SortTiles {
  static constexpr int threads = 256, tile = 1024;
  struct Shared {
    Key keys[2][tile];
  };
  Indices ids;
  Key* keys;
  int64_t tokens, rows, first;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    int64_t begin = t.block.x * tile, n = fn::min<int64_t>(tile, tokens - begin);
    for (int64_t i = t.id; i < n; i += t.threads) {
      int64_t r = ids[begin + i] - first;
      shared.keys[0][i] = key_of(r >= 0 && r < rows ? r : rows, begin + i);
    }
    t.sync();
    int now = 0;
#pragma unroll 1
    for (int64_t run = 1; run < n; run *= ways, now ^= 1) {
      for (int64_t i = t.id; i < n; i += t.threads)
        shared.keys[now ^ 1][merged_place(shared.keys[now], n, run, i)] = shared.keys[now][i];
      t.sync();
    }
    for (int64_t i = t.id; i < n; i += t.threads) keys[begin + i] = shared.keys[now][i];
  }
};

/// to: `from` with `ways` neighbouring runs made one. A thread per key.
struct MergeRuns {
  static constexpr int threads = 256;
  const Key* from;
  Key* to;
  int64_t tokens, run;

  TRIAX_HD void operator()(const Thread& t) const {
    int64_t i = t.global();
    if (i < tokens) to[merged_place(from, tokens, run, i)] = from[i];
  }
};

/// begins[r]: the place of row r's first key, for r in [0, rows]. A thread each.
struct FindRows {
  static constexpr int threads = 256;
  const Key* keys;
  int64_t* begins;
  int64_t tokens, rows;

  TRIAX_HD void operator()(const Thread& t) const {
    int64_t r = t.global();
    if (r <= rows) begins[r] = count_below(keys, tokens, key_of(r, 0));
  }
};

/// dtable[r] = the sum of dy[i] over the row's tokens, or +=; a warp for 32 * size columns of a
/// row. A frequent token's warp has many rows of dy under way.
template <class T, class U, int size> struct SumTokens {
  static constexpr int threads = 256, warps = threads / 32, columns = 32 * size;
  using A = Accumulator<T>;
  static constexpr int deep = size * sizeof(T) == 16 ? 8 : 12;  // what registers have room for
  const Key* keys;
  const int64_t* begins;
  const T* dy;
  U* dtable;
  int64_t rows, width;
  Write write;

  /// Tokens k to k + n - 1 of those that the lanes hold.
  template <int n>
  TRIAX_HD void take(const Thread& t, uint32_t token, int k, int64_t column, A (&sum)[size]) const {
    decltype(read_chunk<size>(dy)) part[n];
#pragma unroll
    for (int j = 0; j < n; ++j) {
      int64_t i = t.shuffle(token, k + j);
      if (column < width) part[j] = read_chunk<size>(dy + i * width + column);
    }
    if (column < width)
#pragma unroll
      for (int j = 0; j < n; ++j)
#pragma unroll
        for (int c = 0; c < size; ++c) sum[c] += load(part[j].at[c]);
  }
  TRIAX_HD uint32_t held_token(const Thread& t, int64_t from, int64_t end) const {
    return from + t.lane() < end ? uint32_t(token_of(keys[from + t.lane()])) : 0;
  }
  TRIAX_HD void store(U* to, const A (&sum)[size]) const {
    decltype(read_chunk<size>(dtable)) out;
    if (write == Write::add) out = read_chunk<size>(to);
#pragma unroll
    for (int c = 0; c < size; ++c)
      if (write == Write::add) put<Write::add>(out.at[c], sum[c]);
      else put<Write::set>(out.at[c], sum[c]);
    write_chunk(to, out);
  }
  TRIAX_HD void operator()(const Thread& t) const {
    int64_t groups = (width + columns - 1) / columns, w = t.block.x * warps + t.warp();
    int64_t r = w / groups, column = (w - r * groups) * columns + t.lane() * size;
    if (r >= rows) return;
    int64_t begin = begins[r], end = begins[r + 1];
    if (begin == end && write == Write::add) return;
    A sum[size];
#pragma unroll
    for (int c = 0; c < size; ++c) sum[c] = 0;
    uint32_t next = held_token(t, begin, end);
#pragma unroll 1
    for (int64_t from = begin; from < end; from += 32) {
      uint32_t token = next;
      next = held_token(t, from + 32, end);
      int n = int(fn::min<int64_t>(32, end - from)), k = 0;
#pragma unroll 1
      for (; k + deep <= n; k += deep) take<deep>(t, token, k, column, sum);
#pragma unroll 1
      for (; k + 4 <= n; k += 4) take<4>(t, token, k, column, sum);
#pragma unroll 1
      for (; k < n; ++k) take<1>(t, token, k, column, sum);
    }
    if (column < width) store(dtable + r * width + column, sum);
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
