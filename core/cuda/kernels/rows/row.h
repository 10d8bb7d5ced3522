#pragma once
#include <type_traits>

#include "triax/core/cuda/kernels/convert.h"
#include "triax/core/cuda/kernels/pack.h"
#include "triax/core/cuda/kernels/reduce_block.h"

// The sharing of rows of [rows, width] among threads.

namespace triax::cuda::TRIAX_TARGET {

/// `size` neighbouring elements, in one access if there are several (aligned ones).
template <class T, int n> struct Chunk {
  static constexpr int size = n;
  T at[n];
};
template <int size, class T> TRIAX_HD auto read_chunk(const T* from) {
  if constexpr (size > 1) return load_pack<size>(from);
  else return Chunk<T, 1>{{*from}};
}
template <class T> TRIAX_HD void write_chunk(T* to, const Chunk<T, 1>& x) { *to = x.at[0]; }

/// A team of threads per row: a warp or a block of 256. Each thread holds up to `most` chunks of
/// each input in registers, so that a row is read once; with 0 the row is too long for that and is
/// read (from a cache) as often as it is needed. Chunks are packs, or single elements of rows that
/// are not aligned or no multiple of a pack wide.
template <int team_, int most_, bool packs_> struct RowLayout {
  static constexpr int team = team_, most = most_, threads = 256;
  static constexpr bool packs = packs_;
  static_assert(team == 32 || team == threads);

  TRIAX_HD static int64_t row(const Thread& t) {
    return team == threads ? t.block.x : t.block.x * (threads / team) + t.warp();
  }
  TRIAX_HD static int rank(const Thread& t) { return team == threads ? t.id : t.lane(); }
  static Grid grid(int64_t rows) {
    constexpr int each = threads / team;
    return {(rows + each - 1) / each};
  }
  /// Reduces by op over the team's values; every thread of it has the result.
  template <class A, class Op>
  TRIAX_HD static A reduce(const Thread& t, A value, Op op, Partials<A>& partials) {
    if constexpr (team == 32) return reduce_warp(t, value, op);
    else return reduce_block(t, value, op, partials);
  }
  /// Reduces two values.
  template <class A, class Op>
  TRIAX_HD static void reduce(const Thread& t, A& a, A& b, Op op, PairOfPartials<A>& partials) {
    if constexpr (team == 32) a = reduce_warp(t, a, op), b = reduce_warp(t, b, op);
    else reduce_block(t, a, b, op, partials);
  }
};

/// One row of N inputs of the same shape, as one thread sees it.
template <class T, class Layout, int N> struct Row {
  static constexpr int size = Layout::packs ? 16 / int(sizeof(T)) : 1;
  static constexpr int most = Layout::most;
  using Part = decltype(read_chunk<size>(static_cast<const T*>(nullptr)));
  const T* from[N];
  int64_t width;
  int rank;
  Part held[N][most > 0 ? most : 1];

  template <class... P>
  TRIAX_HD Row(const Thread& t, int64_t n, P... first)
      : from{first + Layout::row(t) * n...}, width(n), rank(Layout::rank(t)) {
    static_assert(sizeof...(P) == N);
#pragma unroll
    for (int p = 0; p < most; ++p)
      if (at(p) < width)
#pragma unroll
        for (int k = 0; k < N; ++k) held[k][p] = read_chunk<size>(from[k] + at(p));
  }
  /// Calls body(i, parts) for this thread's chunks: parts[k] are elements [i, i + size) of input k.
  template <class Body> TRIAX_HD void each(Body body) const {
    if constexpr (most > 0) {
#pragma unroll
      for (int p = 0; p < most; ++p)
        if (at(p) < width) {
          Part parts[N];
#pragma unroll
          for (int k = 0; k < N; ++k) parts[k] = held[k][p];
          body(int64_t(at(p)), parts);
        }
    } else {
      for (int64_t i = rank * size; i < width; i += Layout::team * size) {
        Part parts[N];
#pragma unroll
        for (int k = 0; k < N; ++k) parts[k] = read_chunk<size>(from[k] + i);
        body(i, parts);
      }
    }
  }

 private:
  TRIAX_HD int at(int p) const { return (rank + p * Layout::team) * size; }
};

/// Calls `f.operator()<Layout>()` with the layout for rows of `width` elements T; `aligned`: each
/// row begins at a multiple of 16 bytes.
template <class T, class F> void visit_layout(int64_t width, bool aligned, F&& f) {
  if constexpr (!__is_same(T, double))  // f64 is for gradient checks: compiled sooner
    if (aligned) {
      int64_t packs = width * int64_t(sizeof(T)) / 16;
      if (packs <= 32 * 4) f.template operator()<RowLayout<32, 4, true>>();
      else if (packs <= 32 * 8) f.template operator()<RowLayout<32, 8, true>>();
      else if (packs <= 256 * 4) f.template operator()<RowLayout<256, 4, true>>();
      else if (packs <= 256 * 8) f.template operator()<RowLayout<256, 8, true>>();
      else f.template operator()<RowLayout<256, 0, true>>();
      return;
    }
  if (width <= 1024) f.template operator()<RowLayout<32, 0, false>>();
  else f.template operator()<RowLayout<256, 0, false>>();
}
/// True if rows of `width` that begin at these addresses may be read in packs.
template <class T, class... Rest>
bool rows_aligned(int64_t width, const T* x, const Rest*... rest) {
  return width * int64_t(sizeof(T)) % 16 == 0 && packs_fit(x, rest...);
}

/// Returns the elements of a row before the first that lies at a multiple of 16 bytes.
template <class T> TRIAX_HD int64_t head_of(const T* row) {
  return int64_t(-reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
}

/// Calls body(i, chunk) for all elements of a row that may begin anywhere, shared among a block's
/// threads: single ones up to the first multiple of 16 bytes and behind the last; between them
/// packs, of which a thread reads four before it uses them. `packs` = false: single ones only.
/// `read(p, from)`, if given, returns pack number p, which lies at `from`.
template <class T, class Body, class Read>
TRIAX_HD void walk_row(const Thread& t, const T* row, int64_t n, bool packs, Body body, Read read) {
  constexpr int size = 16 / int(sizeof(T)), batch = 4;
  int64_t head = head_of(row);
  if (!packs || head > n) head = n;
  int64_t count = (n - head) / size, p = t.id;
  const T* from = row + head;
#pragma unroll 1
  for (; p + (batch - 1) * t.threads < count; p += batch * t.threads) {
    Pack<T, size> held[batch];
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      int64_t q = p + b * t.threads;
      held[b] = read(q, from + q * size);
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) body(head + (p + b * t.threads) * size, held[b]);
  }
#pragma unroll 1
  for (; p < count; p += t.threads) body(head + p * size, read(p, from + p * size));
#pragma unroll 1
  for (int64_t i = t.id; i < head; i += t.threads) body(i, read_chunk<1>(row + i));
#pragma unroll 1
  for (int64_t i = head + count * size + t.id; i < n; i += t.threads)
    body(i, read_chunk<1>(row + i));
}
template <class T, class Body>
TRIAX_HD void walk_row(const Thread& t, const T* row, int64_t n, bool packs, Body body) {
  constexpr int size = 16 / int(sizeof(T));
  walk_row(t, row, n, packs, body, [](int64_t, const T* from) { return load_pack<size>(from); });
}

}  // namespace triax::cuda::TRIAX_TARGET
