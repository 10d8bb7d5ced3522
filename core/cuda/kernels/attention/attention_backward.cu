#include "triax/core/cuda/kernels/attention/attention_heads.h"
#include "triax/core/cuda/kernels/attention/attention_tile.h"

// Weights are made again from the saved logarithms (Dao et al., "FlashAttention", 2022, algorithm
// 4): with D = rowsum(dY * Y) and F the factors of dropout,
//   dS = P * (F * dP - D) * scale,  dV = (F * P)^T dY,  dK = dS^T Q,  dQ = dS K.
// dQ is a sum over keys, dK and dV are sums over queries. One block makes each sum, in order, so
// that bits repeat without atomics: in two kernels, which both make the scores and dP. That costs 7
// products of tiles instead of 5.

namespace triax::cuda::TRIAX_TARGET {

/// The arguments that both kernels have.
template <class T> struct AttentionGradients {
  AttentionHeads<T> heads;
  const T *y, *dy;            // [tokens, heads, dim]
  const Accumulator<T>* lse;  // [tokens, heads]
  Accumulator<T>* delta;      // D, [tokens, heads]
  AttentionTensor<T> dq, dk, dv;
};

/// The weight of a query and a key before dropout, and the gradient of their score.
template <class A> struct AttentionWeight {
  A value;
  TRIAX_HD AttentionWeight(bool seen, A scaled_score, A lse)
      : value(seen ? fn::exp(scaled_score - lse) : A(0)) {}
  TRIAX_HD A gradient(A grad, A delta, A scale) const { return value * (grad - delta) * scale; }
};

/// dQ of one block of queries, which walks the keys that it sees; and D, for the other kernel.
template <class T, int width> struct AttentionBackwardQueries {
  using A = Accumulator<T>;
  using Tile = AttentionTile<A, width>;
  static constexpr int threads = Tile::threads, rows = Tile::rows, each = Tile::each;
  struct Shared {
    alignas(16) typename Tile::Vectors queries, grads, keys, values;
    alignas(16) typename Tile::Scores scores;
    typename Tile::Kept kept;
  };
  AttentionGradients<T> g;

  /// The state of the thread's rows.
  struct Known {
    A lse[each], delta[each];
  };

  TRIAX_HD Known know(const Thread& t, const AttentionRows& queries, const Shared& s) const {
    auto y = g.heads.matrix(g.y, queries);
    Known known;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      int row = Tile::row(t) + i;
      bool there = row < queries.count;
      A sum = 0;
#pragma unroll 1
      for (int d = Tile::lane(t); there && d < g.heads.dim; d += Tile::across)
        sum = fn::fma(load(y.at[row * y.stride + d]), s.grads[row][d], sum);
      known.delta[i] = reduce_half_warp(t, sum, Sum{});
      known.lse[i] = there ? g.lse[g.heads.place(queries, row)] : A(0);
      if (there && Tile::lane(t) == 0) g.delta[g.heads.place(queries, row)] = known.delta[i];
    }
    return known;
  }

  TRIAX_HD void add_keys(const Thread& t, const AttentionRows& queries, const AttentionRows& keys,
                         const Known& known, typename Tile::Products& dq, Shared& s) const {
    AttentionDropout<Tile, T> dropout(g.heads, queries, keys);
    AttentionSight sight(g.heads.band, queries, keys, rows);
    typename Tile::Square scores, grads;
    multiply_rows<Tile>(t, g.heads.dim, s.queries, s.keys, scores);
    multiply_rows<Tile>(t, g.heads.dim, s.grads, s.values, grads);
#pragma unroll
    for (int i = 0; i < each; ++i)
#pragma unroll
      for (int j = 0; j < each; ++j) {
        int query = Tile::row(t) + i, key = Tile::lane(t) + Tile::across * j;
        AttentionWeight<A> weight(sight.sees(query, key), scores[i][j] * g.heads.scale,
                                  known.lse[i]);
        A grad = grads[i][j] * dropout.factor(s.kept, query, key);
        scores[i][j] = weight.gradient(grad, known.delta[i], g.heads.scale);
      }
    share_scores<Tile>(t, scores, s.scores);
    add_products<Tile>(t, s.scores, s.keys, dq);
  }

  TRIAX_HD void operator()(const Thread& t, Shared& s) const {
    int64_t blocks = (g.heads.time + rows - 1) / rows, head = t.block.x / blocks;
    int64_t block = blocks - 1 - t.block.x % blocks;  // the longest first
    AttentionRows queries = g.heads.queries(head, block * rows, rows);
    int64_t end = g.heads.band.end(queries.first + queries.count - 1);
    load_tile<Tile>(t, g.heads, g.heads.matrix(g.heads.q, queries), s.queries);
    load_tile<Tile>(t, g.heads, g.heads.matrix(g.dy, queries), s.grads);
    t.sync();
    Known known = know(t, queries, s);
    typename Tile::Products dq = {};
#pragma unroll 1
    for (int64_t first = g.heads.band.begin(queries.first) / rows * rows; first < end;
         first += rows) {
      AttentionRows keys = g.heads.keys(head, first, rows);
      load_tile<Tile>(t, g.heads, g.heads.matrix(g.heads.k, keys), s.keys);
      load_tile<Tile>(t, g.heads, g.heads.matrix(g.heads.v, keys), s.values);
      AttentionDropout<Tile, T>(g.heads, queries, keys).draw(t, s.kept);
      t.sync();
      add_keys(t, queries, keys, known, dq, s);
      t.sync();
    }
    store_tile<Tile>(t, g.heads, dq, g.heads.matrix(g.dq, queries));
  }
};

/// dK and dV of one block of keys, which walks the queries that see it, head by head of a group.
template <class T, int width> struct AttentionBackwardKeys {
  using A = Accumulator<T>;
  using Tile = AttentionTile<A, width>;
  static constexpr int threads = Tile::threads, rows = Tile::rows, each = Tile::each;
  struct Shared {
    alignas(16) typename Tile::Vectors keys, values, queries, grads;
    alignas(16) typename Tile::Scores scores;  // [key][query]
    typename Tile::Kept kept;
    A lse[rows], delta[rows];
    AttentionRows mine;  // the keys; here, since registers are short
  };
  AttentionGradients<T> g;

  TRIAX_HD void add_queries(const Thread& t, const AttentionRows& queries,
                            typename Tile::Products& dk, typename Tile::Products& dv,
                            Shared& s) const {
    typename Tile::Square weights, grads;
    multiply_rows<Tile>(t, g.heads.dim, s.keys, s.queries, weights);
    multiply_rows<Tile>(t, g.heads.dim, s.values, s.grads, grads);
    AttentionDropout<Tile, T> dropout(g.heads, queries, s.mine);
    AttentionSight sight(g.heads.band, queries, s.mine, rows);
#pragma unroll
    for (int j = 0; j < each; ++j) {
      int query = Tile::lane(t) + Tile::across * j;
      A lse = s.lse[query], delta = s.delta[query];
#pragma unroll
      for (int i = 0; i < each; ++i) {
        int key = Tile::row(t) + i;
        bool seen = query < queries.count && sight.sees(query, key);
        AttentionWeight<A> weight(seen, weights[i][j] * g.heads.scale, lse);
        A factor = dropout.factor(s.kept, query, key);
        weights[i][j] = weight.value * factor;
        grads[i][j] = weight.gradient(grads[i][j] * factor, delta, g.heads.scale);
      }
    }
    share_scores<Tile>(t, weights, s.scores);
    add_products<Tile>(t, s.scores, s.grads, dv);
    t.sync_warp();
    share_scores<Tile>(t, grads, s.scores);
    add_products<Tile>(t, s.scores, s.queries, dk);
  }

  /// Adds the queries of one head.
  TRIAX_HD void add_head(const Thread& t, int64_t head, typename Tile::Products& dk,
                         typename Tile::Products& dv, Shared& s) const {
    const Band& band = g.heads.band;
    int64_t begin = fn::max<int64_t>(0, s.mine.first - band.high) / rows * rows;
#pragma unroll 1
    for (int64_t first = begin;
         first < fn::min(g.heads.time, s.mine.first + s.mine.count - band.low); first += rows) {
      AttentionRows queries = g.heads.queries(head, first, rows);
      load_tile<Tile>(t, g.heads, g.heads.matrix(g.heads.q, queries), s.queries);
      load_tile<Tile>(t, g.heads, g.heads.matrix(g.dy, queries), s.grads);
      AttentionDropout<Tile, T>(g.heads, queries, s.mine).draw(t, s.kept);
      if (t.id < rows) {
        bool there = t.id < queries.count;
        s.lse[t.id] = there ? g.lse[g.heads.place(queries, t.id)] : A(0);
        s.delta[t.id] = there ? g.delta[g.heads.place(queries, t.id)] : A(0);
      }
      t.sync();
      add_queries(t, queries, dk, dv, s);
      t.sync();
    }
  }

  TRIAX_HD void operator()(const Thread& t, Shared& s) const {
    int64_t blocks = (g.heads.band.keys + rows - 1) / rows;
    int64_t head = t.block.x / blocks * g.heads.group;  // the first of its group
    AttentionRows keys = g.heads.keys(head, t.block.x % blocks * rows, rows);
    load_tile<Tile>(t, g.heads, g.heads.matrix(g.heads.k, keys), s.keys);
    load_tile<Tile>(t, g.heads, g.heads.matrix(g.heads.v, keys), s.values);
    if (t.id == 0) s.mine = keys;
    t.sync();
    typename Tile::Products dk = {}, dv = {};
#pragma unroll 1
    for (int64_t i = 0; i < g.heads.group; ++i) add_head(t, head + i, dk, dv, s);
    store_tile<Tile>(t, g.heads, dk, g.heads.matrix(g.dk, s.mine));
    store_tile<Tile>(t, g.heads, dv, g.heads.matrix(g.dv, s.mine));
  }
};

void Cuda::tiled_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                    const Tensor& dy, const Qkv& d) {
  visit_float(a.in.q.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    visit_head_width(a.head_dim(), [&]<int width>() {
      using Queries = AttentionBackwardQueries<T, width>;
      using Keys = AttentionBackwardKeys<T, width>;
      Scratch<A> delta(allocator(), lse.numel());
      AttentionGradients<T> gradients{attention_heads<T>(a, shifted_rows(), y, dy),
                                      values<T>(y),
                                      values<T>(dy),
                                      values<A>(lse),
                                      delta.data(),
                                      attention_tensor<T>(d.q),
                                      attention_tensor<T>(d.k),
                                      attention_tensor<T>(d.v)};
      bool& packed = gradients.heads.packed;
      packed = packed && rows_fit(gradients.dq) && rows_fit(gradients.dk) && rows_fit(gradients.dv);
      int64_t sequences = a.sequences();
      if (sequences == 0) return;
      launch(stream(), {attention_blocks(sequences * a.heads(), a.time, Queries::rows)},
             Queries{gradients});
      launch(stream(), {attention_blocks(sequences * a.kv_heads(), a.band.keys, Keys::rows)},
             Keys{gradients});
    });
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
