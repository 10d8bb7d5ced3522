#include <limits>

#include "triax/core/cuda/kernels/attention/attention_heads.h"
#include "triax/core/cuda/kernels/attention/attention_tile.h"

namespace triax::cuda::TRIAX_TARGET {

/// y and lse for one block of queries, which walks the keys that it sees with a softmax that is
/// corrected on the way (Dao et al., "FlashAttention", 2022, algorithm 1).
template <class T, int width> struct AttentionForward {
  using A = Accumulator<T>;
  using Tile = AttentionTile<A, width>;
  static constexpr int threads = Tile::threads, rows = Tile::rows, each = Tile::each;
  struct Shared {
    alignas(16) typename Tile::Vectors queries, keys, values;
    alignas(16) typename Tile::Scores weights;
    typename Tile::Kept kept;
  };
  AttentionHeads<T> heads;
  T* y;
  A* lse;

  /// A softmax so far, of the thread's rows: `sum` of the thread's own columns. `largest` begins
  /// finite: a query need not see any of the first keys, whose scores are then -infinity.
  struct Softmax {
    static constexpr A lowest = std::numeric_limits<A>::lowest();
    A largest[each], sum[each];
    TRIAX_HD Softmax() {
#pragma unroll
      for (int i = 0; i < each; ++i) largest[i] = lowest, sum[i] = 0;
    }
  };

  /// Turns scores into weights, in place, and rescales earlier sums to the new largest score.
  TRIAX_HD void soften(const Thread& t, typename Tile::Square& scores, Softmax& so_far,
                       typename Tile::Products& out) const {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      A largest = so_far.largest[i];
#pragma unroll
      for (int j = 0; j < each; ++j) largest = fn::max(largest, scores[i][j]);
      largest = reduce_half_warp(t, largest, Max{});
      A shrink = fn::exp((so_far.largest[i] - largest) * heads.scale), sum = 0;
#pragma unroll
      for (int j = 0; j < each; ++j)
        sum += scores[i][j] = fn::exp((scores[i][j] - largest) * heads.scale);
      so_far.largest[i] = largest;
      so_far.sum[i] = so_far.sum[i] * shrink + sum;
#pragma unroll
      for (int c = 0; c < Tile::columns; ++c) out[i][c] *= shrink;
    }
  }

  TRIAX_HD static void hide(const Thread& t, const AttentionSight& sight,
                            typename Tile::Square& scores) {
#pragma unroll
    for (int i = 0; i < each; ++i)
#pragma unroll
      for (int j = 0; j < each; ++j)
        if (!sight.sees(Tile::row(t) + i, Tile::lane(t) + Tile::across * j))
          scores[i][j] = -A(__builtin_inff());
  }

  TRIAX_HD void add_keys(const Thread& t, const AttentionRows& queries, const AttentionRows& keys,
                         Softmax& so_far, typename Tile::Products& out, Shared& s) const {
    AttentionDropout<Tile, T> dropout(heads, queries, keys);
    AttentionSight sight(heads.band, queries, keys, rows);
    load_tile<Tile>(t, heads, heads.matrix(heads.k, keys), s.keys);
    load_tile<Tile>(t, heads, heads.matrix(heads.v, keys), s.values);
    dropout.draw(t, s.kept);
    t.sync();
    typename Tile::Square scores;
    multiply_rows<Tile>(t, heads.dim, s.queries, s.keys, scores);
    if (!sight.sees_all(rows)) hide(t, sight, scores);
    soften(t, scores, so_far, out);
    if (dropout.any()) {
#pragma unroll
      for (int i = 0; i < each; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j)
          scores[i][j] *=
              dropout.factor(s.kept, Tile::row(t) + i, Tile::lane(t) + Tile::across * j);
    }
    share_scores<Tile>(t, scores, s.weights);
    add_products<Tile>(t, s.weights, s.values, out);
    t.sync();
  }

  TRIAX_HD void operator()(const Thread& t, Shared& s) const {
    int64_t blocks = (heads.time + rows - 1) / rows, head = t.block.x / blocks;
    int64_t block = blocks - 1 - t.block.x % blocks;  // the longest first
    AttentionRows queries = heads.queries(head, block * rows, rows);
    int64_t end = heads.band.end(queries.first + queries.count - 1);
    load_tile<Tile>(t, heads, heads.matrix(heads.q, queries), s.queries);
    Softmax so_far;
    typename Tile::Products out = {};
#pragma unroll 1
    for (int64_t first = heads.band.begin(queries.first) / rows * rows; first < end; first += rows)
      add_keys(t, queries, heads.keys(head, first, rows), so_far, out, s);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      int row = Tile::row(t) + i;
      A sum = reduce_half_warp(t, so_far.sum[i], Sum{}), part = A(1) / sum;
#pragma unroll
      for (int c = 0; c < Tile::columns; ++c) out[i][c] *= part;
      if (row < queries.count && Tile::lane(t) == 0)
        lse[heads.place(queries, row)] = so_far.largest[i] * heads.scale + fn::log(sum);
    }
    store_tile<Tile>(t, heads, out, heads.matrix(y, queries));
  }
};

void Cuda::tiled_attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  visit_float(a.in.q.dtype(), [&]<class T>() {
    visit_head_width(a.head_dim(), [&]<int width>() {
      using Kernel = AttentionForward<T, width>;
      Kernel kernel{attention_heads<T>(a, shifted_rows(), y), values<T>(y),
                    values<Accumulator<T>>(lse)};
      int64_t blocks = attention_blocks(a.sequences() * a.heads(), a.time, Kernel::rows);
      if (blocks > 0) launch(stream(), {blocks}, kernel);
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
