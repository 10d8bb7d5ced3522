#include <string>

#include "triax/core/cuda/kernels/rows/row.h"
#include "triax/core/cuda/kernels/tensors.h"
#include "triax/core/error.h"
#include "triax/core/shared/indices.h"

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

// The backward sums each row of the table in the order of its tokens, if they are many in pieces.
// Keys, the row above the token, are sorted by merging; no two are equal, so there is one order
// only. Then a row's tokens stand side by side.

using Key = uint64_t;
TRIAX_HD Key key_of(int64_t row, int64_t token) { return Key(row) << 32 | Key(token); }
TRIAX_HD int64_t row_of(Key k) { return int64_t(k >> 32); }
TRIAX_HD int64_t token_of(Key k) { return int64_t(k & 0xffffffffu); }

/// Returns how many of the `n` sorted keys lie below `key`.
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

/// Returns the place of the key at `i` when `ways` neighbouring sorted runs of `run` keys become
/// one; the last of the `n` keys may lack some.
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

/// Makes keys of ids, sorted in tiles. Those that the table has no row for come last.
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

/// The tokens of a row that one warp adds up. The sum of a row with more is that of its pieces,
/// each of this many tokens from the row's first on, in order: no slice of a vocabulary changes it.
constexpr int64_t most_in_turn = 256;

/// Sums dy over sorted tokens, in order; a warp for 32 * size columns. A warp with many tokens
/// loads many rows of dy ahead.
template <class T, int size> struct TokenSums {
  static constexpr int columns = 32 * size;
  using A = Accumulator<T>;
  static constexpr int deep = size * sizeof(T) == 16 ? 8 : 12;  // what registers have room for
  const Key* keys;
  const T* dy;
  int64_t width;

  TRIAX_HD int64_t groups() const { return (width + columns - 1) / columns; }

  /// Takes tokens k to k + n - 1 of those that the lanes hold.
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
  /// Adds keys [begin, end) to sum, columns from `column` on.
  TRIAX_HD void add(const Thread& t, int64_t begin, int64_t end, int64_t column,
                    A (&sum)[size]) const {
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
  }
  /// Stores to = or += sum.
  template <class U> TRIAX_HD static void store(U* to, const A (&sum)[size], Write write) {
    decltype(read_chunk<size>(to)) out;
    if (write == Write::add) out = read_chunk<size>(to);
#pragma unroll
    for (int c = 0; c < size; ++c)
      if (write == Write::add) put<Write::add>(out.at[c], sum[c]);
      else put<Write::set>(out.at[c], sum[c]);
    write_chunk(to, out);
  }
};

/// parts[keys / most_in_turn, 2, width]: the sums of the pieces of rows that have several. Among
/// most_in_turn keys one such row can begin, whose first piece is number 1; number 0 is a later
/// piece of the row before it. What no piece belongs to is not written.
template <class T, int size> struct TokenPieces {
  static constexpr int threads = 256, warps = threads / 32;
  using A = Accumulator<T>;
  TokenSums<T, size> of;
  const int64_t* begins;
  A* parts;
  int64_t tokens, rows;

  TRIAX_HD void operator()(const Thread& t) const {
    int64_t w = t.block.x * warps + t.warp(), piece = w / of.groups();
    int64_t column = (w - piece * of.groups()) * of.columns + t.lane() * size;
    int64_t from = piece / 2 * most_in_turn;
    if (from >= tokens) return;
    bool is_first = piece % 2;
    int64_t last = fn::min(from + most_in_turn, tokens) - 1,
            r = row_of(of.keys[is_first ? last : from]);
    if (r >= rows) return;
    int64_t begin = begins[r], end = begins[r + 1];
    if (end - begin <= most_in_turn || (begin >= from) != is_first) return;
    int64_t first = begin + (from / most_in_turn - begin / most_in_turn) * most_in_turn;
    if (first >= end) return;
    A sum[size] = {};
    of.add(t, first, fn::min(first + most_in_turn, end), column, sum);
    if (column < of.width) of.store(parts + piece * of.width + column, sum, Write::set);
  }
};

/// dtable[r] = the sum of dy[i] over the row's tokens, or +=; a warp for 32 * size columns of a
/// row. `parts` of TokenPieces.
template <class T, class U, int size> struct SumTokens {
  static constexpr int threads = 256, warps = threads / 32;
  using A = Accumulator<T>;
  TokenSums<T, size> of;
  const int64_t* begins;
  const A* parts;
  U* dtable;
  int64_t rows;
  Write write;

  TRIAX_HD void add_pieces(int64_t begin, int64_t end, int64_t column, A (&sum)[size]) const {
    int64_t n = (end - begin + most_in_turn - 1) / most_in_turn, at = begin / most_in_turn;
#pragma unroll 4
    for (int64_t i = 0; i < n; ++i) {
      auto part = read_chunk<size>(parts + (2 * (at + i) + (i == 0)) * of.width + column);
#pragma unroll
      for (int c = 0; c < size; ++c) sum[c] += part.at[c];
    }
  }
  TRIAX_HD void operator()(const Thread& t) const {
    int64_t w = t.block.x * warps + t.warp(), r = w / of.groups();
    int64_t column = (w - r * of.groups()) * of.columns + t.lane() * size;
    if (r >= rows) return;
    int64_t begin = begins[r], end = begins[r + 1];
    if (begin == end && write == Write::add) return;
    A sum[size] = {};
    if (end - begin <= most_in_turn) of.add(t, begin, end, column, sum);
    else if (column < of.width) add_pieces(begin, end, column, sum);
    if (column < of.width) of.store(dtable + r * of.width + column, sum, write);
  }
};

namespace {

int64_t blocks_for(int64_t n, int64_t each) { return (n + each - 1) / each; }

// Returns the ids' keys, sorted; `keys` and `spare` have room for one each per token.
const Key* sort_tokens(Stream stream, const SortTiles& tiles, Key* spare) {
  int64_t n = tiles.tokens;
  Key *now = tiles.keys, *other = spare;
  if (n > 0) launch(stream, {blocks_for(n, tiles.tile)}, tiles);
  for (int64_t run = tiles.tile; run < n; run *= ways) {
    launch(stream, {blocks_for(n, MergeRuns::threads)}, MergeRuns{now, other, n, run});
    Key* merged = other;
    other = now;
    now = merged;
  }
  return now;
}

struct Uses {
  const Key* keys;
  const int64_t* begins;
  int64_t tokens;
};

template <class T, class U, int size>
void sum_tokens(const Queue& q, const Uses& uses, const Tensor& dy, const Tensor& dtable,
                Write write) {
  using Part = TokenPieces<T, size>;
  using Sums = SumTokens<T, U, size>;
  int64_t rows = dtable.size(0), width = dtable.size(1);
  TokenSums<T, size> of{uses.keys, values<T>(dy), width};
  bool cut = uses.tokens > most_in_turn;  // else no row has several pieces
  int64_t pieces = cut ? 2 * blocks_for(uses.tokens, most_in_turn) : 0;
  Scratch<Accumulator<T>> parts(q.memory, pieces * width);
  if (cut)
    launch(q.stream, {blocks_for(pieces * of.groups(), Part::warps)},
           Part{of, uses.begins, parts.data(), uses.tokens, rows});
  launch(q.stream, {blocks_for(rows * of.groups(), Sums::warps)},
         Sums{of, uses.begins, parts.data(), values<U>(dtable), rows, write});
}

}  // namespace

void Cuda::embedding(const Tensor& ids, const Tensor& table, int64_t first, const Tensor& y) {
  int64_t rows = table.size(0), width = table.size(1), tokens = ids.numel();
  if (tokens == 0) return;
  visit_bits(y.dtype(), [&]<class T>() {
    using Forward = EmbeddingForward<T>;
    const T* from = values<T>(table);
    T* to = values<T>(y);
    bool packs = rows_aligned(width, from, to);
    launch(stream(), {blocks_for(tokens, Forward::warps)},
           Forward{indices_of(ids), from, to, tokens, rows, width, first, packs});
  });
}

void Cuda::embedding_backward(const Tensor& ids, const Tensor& dy, int64_t first,
                              const Tensor& dtable, Write write) {
  int64_t rows = dtable.size(0), width = dtable.size(1), tokens = ids.numel();
  if (rows == 0 || width == 0) return;
  if (tokens >> 32 || rows >> 31)
    throw Error(Exit::config, "embedding_backward: " + std::to_string(tokens) + " tokens and " +
                                  std::to_string(rows) + " rows; expected below 2^32 and 2^31");
  Scratch<Key> keys(allocator(), tokens), spare(allocator(), tokens);
  Scratch<int64_t> begins(allocator(), rows + 1);
  SortTiles tiles{indices_of(ids), keys.data(), tokens, rows, first};
  const Key* sorted = sort_tokens(stream(), tiles, spare.data());
  launch(stream(), {blocks_for(rows + 1, FindRows::threads)},
         FindRows{sorted, begins.data(), tokens, rows});
  Queue q{stream(), allocator()};
  Uses uses{sorted, begins.data(), tokens};
  visit_float(dy.dtype(), [&]<class T>() {
    visit_sum<T>(dtable.dtype(), [&]<class U>() {
      constexpr int size = sizeof(T) == 8 ? 2 : 4;
      constexpr size_t alignment = size * (sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U));
      static_assert(alignment <= 16);
      bool aligned = width % size == 0 && packs_fit(values<T>(dy), values<U>(dtable));
      if (aligned) sum_tokens<T, U, size>(q, uses, dy, dtable, write);
      else sum_tokens<T, U, 1>(q, uses, dy, dtable, write);
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
