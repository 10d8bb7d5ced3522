#include <string>

#include "core/cuda/kernels/rows/embedding.h"
#include "core/cuda/kernels/tensors.h"
#include "core/error.h"

namespace triax::cuda::TRIAX_TARGET {
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
