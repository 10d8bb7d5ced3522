#include "triax/core/cpu/attention/attention.h"
#include "triax/core/cpu/rows/row.h"
#include "triax/core/cpu/scratch.h"
#include "triax/core/shared/team.h"

// Weights are made again from the saved logarithms (Dao et al., "FlashAttention", 2022, algorithm
// 4), a block of queries at a time: with D = rowsum(dy * y),
//   dS = P * (dP - D) / sqrt(dim),  dV += P^T dY,  dK += dS^T Q,  dQ = dS K.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Working arrays of one thread.
template <class A> struct Room : Layout {
  static constexpr int rows = Tile<A>::rows, cols = Tile<A>::cols;
  int64_t keys, values, keys_by_dim;     // left operands
  int64_t queries, grads;                // right operands, over dims
  int64_t queries_by_dim, grads_by_dim;  // right operands, over queries
  int64_t weights, scores, turned, dq;   // [key][query], and with keys as rows
  int64_t dk, dv;                        // sums [key, dim_stride]
  int64_t dim_stride, sums;              // elements of dk
  Room(int64_t time, int64_t dim)        // time: of keys
      : keys(take(packed_size<A, rows>(time, dim))),
        values(take(packed_size<A, rows>(time, dim))),
        keys_by_dim(take(packed_size<A, rows>(dim, time))),
        queries(take(packed_size<A, cols>(cols, dim))),
        grads(take(packed_size<A, cols>(cols, dim))),
        queries_by_dim(take(packed_size<A, cols>(dim, cols))),
        grads_by_dim(take(packed_size<A, cols>(dim, cols))),
        weights(take(round_up(time, rows) * cols)),
        scores(take(round_up(time, rows) * cols)),
        turned(take(packed_size<A, rows>(time, cols))),
        dq(take(round_up(dim, rows) * cols)) {
    dim_stride = round_up(dim, cols);
    sums = round_up(time, rows) * dim_stride;
    dk = take(sums);
    dv = take(sums);
  }
};

template <class T> struct Gradients {
  const T *y, *dy;            // [tokens, heads * dim]
  const Accumulator<T>* lse;  // [tokens, heads]
  const Qkv& d;
};

/// Turns scores to weights, and weights' gradients to scores', in place; keys from `key` on.
template <class A, int n>
void differentiate(A* weights, A* grads, int64_t key, int64_t keys, A scale, const A (&lse)[n],
                   const A (&delta)[n], Factors<A>& factors) {
  A factor[n];
  for (int l = 0; l < n; ++l) factor[l] = 1;
  for (int64_t j = 0; j < keys; ++j) {
    if (factors.any()) factors.of_key(key + j, factor);
    A *w = weights + j * n, *g = grads + j * n;
    for (int l = 0; l < n; ++l) {
      A p = fn::exp(w[l] * scale - lse[l]);
      w[l] = p * factor[l];
      g[l] = p * (g[l] * factor[l] - delta[l]) * scale;
    }
  }
}

/// sums[key][dim] += turned weights times [query][dim].
template <class A>
void add_over_queries(const A* weights, int64_t keys, const A* right, int64_t queries, A* turned,
                      A* sums, int64_t dim_stride) {
  constexpr int rows = Tile<A>::rows, cols = Tile<A>::cols;
  pack<A, rows>(Operand<A>{weights, cols, 1}, keys, queries, turned);
  for (int64_t j = 0; j < keys; j += rows)
    for (int64_t d = 0; d < dim_stride; d += cols)
      put<A>(multiply<A>(turned + j * queries, right + d * queries, queries),
             sums + j * dim_stride + d, dim_stride, Write::add);
}

/// Computes the dq of one block of queries and its part of dk and dv.
template <class T, class A = Accumulator<T>>
void differentiate_block(const Head<T>& h, const Gradients<T>& g, int64_t first, A* m) {
  constexpr int n = Tile<A>::cols, rows = Tile<A>::rows;
  Room<A> r(h.band.keys, h.dim);
  Block b(h, first, n, rows);
  int64_t s = h.y_stride(), keys = b.end - b.begin, padded = round_up(keys, rows);
  const T *y = g.y + h.place(first) * h.dim, *dy = g.dy + h.place(first) * h.dim;
  A lse[n] = {}, delta[n] = {}, one[n];
  for (int l = 0; l < n; ++l) one[l] = 1;
  for (int64_t l = 0; l < b.count; ++l) {
    lse[l] = g.lse[h.place(first + l)];
    delta[l] = sum_of<A>(h.dim, [=](int64_t d) { return A(y[l * s + d]) * A(dy[l * s + d]); });
  }
  pack<A, n>(h.q.by_row(first), b.count, h.dim, m + r.queries);
  pack<A, n>(Operand<T>{dy, s, 1}, b.count, h.dim, m + r.grads);
  pack<A, n>(h.q.by_dim(first), h.dim, b.count, m + r.queries_by_dim);
  pack<A, n>(Operand<T>{dy, 1, s}, h.dim, b.count, m + r.grads_by_dim);

  multiply_panels<A>(m + r.keys + b.begin * h.dim, keys, h.dim, m + r.queries, h.dim,
                     m + r.weights);
  multiply_panels<A>(m + r.values + b.begin * h.dim, keys, h.dim, m + r.grads, h.dim, m + r.scores);
  hide(h.band, b, b.begin + padded, m + r.weights);
  Factors<A> factors(h.mask, first);
  differentiate<A, n>(m + r.weights, m + r.scores, b.begin, padded, h.scale, lse, delta, factors);
  int64_t sums = b.begin * r.dim_stride;
  add_over_queries<A>(m + r.weights, padded, m + r.grads_by_dim, b.count, m + r.turned,
                      m + r.dv + sums, r.dim_stride);
  add_over_queries<A>(m + r.scores, padded, m + r.queries_by_dim, b.count, m + r.turned,
                      m + r.dk + sums, r.dim_stride);
  multiply_panels<A>(m + r.keys_by_dim + b.begin * rows, h.dim, h.band.keys, m + r.scores, keys,
                     m + r.dq);
  Rows<T> dq(g.d.q, h.token, h.head);
  write_queries<T>(m + r.dq, h.dim, b.count, one, dq.at(first), dq.stride);
}

/// Computes all query heads of one key-value head: dk and dv are summed over them and their blocks
/// in order. `task` counts key-value heads, and these in sequences.
template <class T, class A = Accumulator<T>>
void differentiate_group(const Attention& a, const Gradients<T>& g, int64_t task, A* m) {
  constexpr int rows = Tile<A>::rows;
  int64_t group = a.group(), keys = a.band.keys, dim = a.head_dim();
  Head<T> head(a, task * group);
  Room<A> r(keys, dim);
  pack<A, rows>(head.k.by_row(), keys, dim, m + r.keys);
  pack<A, rows>(head.v.by_row(), keys, dim, m + r.values);
  pack<A, rows>(head.k.by_dim(), dim, keys, m + r.keys_by_dim);
  for (int64_t i = 0; i < r.sums; ++i) m[r.dk + i] = m[r.dv + i] = 0;
  for (int64_t i = 0; i < group; ++i) {
    Head<T> h = head.further(i);
    for (int64_t first = 0; first < h.time; first += Tile<A>::cols)
      differentiate_block(h, g, first, m);
  }
  Rows<T> dk(g.d.k, head.key_token, head.head / group),
      dv(g.d.v, head.key_token, head.head / group);
  for (int64_t i = 0; i < keys; ++i)
    for (int64_t d = 0; d < dim; ++d) {
      dk.at(i)[d] = convert<T>(m[r.dk + i * r.dim_stride + d]);
      dv.at(i)[d] = convert<T>(m[r.dv + i * r.dim_stride + d]);
    }
}

}  // namespace

void Cpu::attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                             const Tensor& dy, const Qkv& d) {
  visit_float(a.in.q.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    int64_t tasks = a.sequences() * a.kv_heads();
    int64_t threads = fn::max<int64_t>(1, fn::min<int64_t>(threads_here(), tasks));
    Room<A> room(a.band.keys, a.head_dim());
    Scratch<A> scratch(room.end * threads);
    A* memory = scratch.data();
    Gradients<T> g{values<T>(y), values<T>(dy), values<A>(lse), d};
    in_turns(tasks, threads, [&](int64_t task, int64_t share) {
      differentiate_group(a, g, task, memory + room.end * share);
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
