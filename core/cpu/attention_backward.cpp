#include <omp.h>

#include "core/cpu/attention.h"
#include "core/cpu/row.h"
#include "core/cpu/scratch.h"

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
  int64_t dk, dv;                        // sums [time, dim_stride]
  int64_t dim_stride, sums;              // elements of dk
  Room(int64_t time, int64_t dim)
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
  T* dqkv;                    // [tokens, heads * 3 * dim]
};

/// Scores to weights and the gradient of weights to that of scores, in place; `rows` of keys, those
/// that a query may not see to zero.
template <class A, int n>
void differentiate(A* weights, A* grads, int64_t rows, int64_t first_query, A scale,
                   const A (&lse)[n], const A (&delta)[n], Factors<A>& factors) {
  A factor[n];
  for (int l = 0; l < n; ++l) factor[l] = 1;
  for (int64_t j = 0; j < rows; ++j) {
    if (factors.any()) factors.of_key(j, factor);
    A *w = weights + j * n, *g = grads + j * n;
    for (int l = 0; l < n; ++l) {
      A p = fn::exp(w[l] * scale - lse[l]);
      p = fn::select(first_query + l < j, A(0), p);
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

/// One block of queries: its dq, and its part of dk and dv.
template <class T, class A = Accumulator<T>>
void block(const Head<T>& h, const Gradients<T>& g, int64_t first, A* m) {
  constexpr int n = Tile<A>::cols;
  Room<A> r(h.time, h.dim);
  int64_t count = fn::min<int64_t>(n, h.time - first), keys = first + count, s = h.y_stride();
  int64_t padded = round_up(keys, Tile<A>::rows);
  const T *q = h.q + first * h.stride, *y = g.y + h.y_offset() + first * s,
          *dy = g.dy + h.y_offset() + first * s;
  A lse[n] = {}, delta[n] = {}, one[n];
  for (int l = 0; l < n; ++l) one[l] = 1;
  for (int64_t l = 0; l < count; ++l) {
    lse[l] = g.lse[(h.token + first + l) * h.heads + h.head];
    delta[l] = sum_of<A>(h.dim, [=](int64_t d) { return A(y[l * s + d]) * A(dy[l * s + d]); });
  }
  pack<A, n>(Operand<T>{q, h.stride, 1}, count, h.dim, m + r.queries);
  pack<A, n>(Operand<T>{dy, s, 1}, count, h.dim, m + r.grads);
  pack<A, n>(Operand<T>{q, 1, h.stride}, h.dim, count, m + r.queries_by_dim);
  pack<A, n>(Operand<T>{dy, 1, s}, h.dim, count, m + r.grads_by_dim);

  multiply_panels<A>(m + r.keys, keys, h.dim, m + r.queries, h.dim, m + r.weights);
  multiply_panels<A>(m + r.values, keys, h.dim, m + r.grads, h.dim, m + r.scores);
  Factors<A> factors(h.mask, h.token + first, h.column);
  differentiate<A, n>(m + r.weights, m + r.scores, padded, first, h.scale, lse, delta, factors);
  add_over_queries<A>(m + r.weights, padded, m + r.grads_by_dim, count, m + r.turned, m + r.dv,
                      r.dim_stride);
  add_over_queries<A>(m + r.scores, padded, m + r.queries_by_dim, count, m + r.turned, m + r.dk,
                      r.dim_stride);
  multiply_panels<A>(m + r.keys_by_dim, h.dim, h.time, m + r.scores, keys, m + r.dq);
  write_queries<T>(m + r.dq, h.dim, count, one,
                   g.dqkv + (q - h.q) + h.token * h.stride + h.head * 3 * h.dim, h.stride);
}

/// All of one head: dk and dv are summed over the blocks in order.
template <class T, class A = Accumulator<T>>
void differentiate_head(const Head<T>& h, const Gradients<T>& g, A* m) {
  constexpr int rows = Tile<A>::rows;
  Room<A> r(h.time, h.dim);
  pack<A, rows>(Operand<T>{h.k, h.stride, 1}, h.time, h.dim, m + r.keys);
  pack<A, rows>(Operand<T>{h.v, h.stride, 1}, h.time, h.dim, m + r.values);
  pack<A, rows>(Operand<T>{h.k, 1, h.stride}, h.dim, h.time, m + r.keys_by_dim);
  for (int64_t i = 0; i < r.sums; ++i) m[r.dk + i] = m[r.dv + i] = 0;
  for (int64_t first = 0; first < h.time; first += Tile<A>::cols) block(h, g, first, m);
  T* to = g.dqkv + h.token * h.stride + h.head * 3 * h.dim;
  for (int64_t i = 0; i < h.time; ++i, to += h.stride)
    for (int64_t d = 0; d < h.dim; ++d) {
      to[h.dim + d] = convert<T>(m[r.dk + i * r.dim_stride + d]);
      to[2 * h.dim + d] = convert<T>(m[r.dv + i * r.dim_stride + d]);
    }
}

}  // namespace

void Cpu::causal_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                    const Tensor& dy, const Tensor& dqkv) {
  visit_float(a.qkv.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    int64_t width = a.qkv.size(1), heads = a.heads(), tasks = a.qkv.size(0) / a.time * heads;
    int64_t threads = fn::min<int64_t>(omp_get_max_threads(), tasks + 1);
    Room<A> room(a.time, a.head_dim);
    Scratch<A> scratch(room.end * threads);
    A* memory = scratch.data();
    Gradients<T> g{values<T>(y), values<T>(dy), values<A>(lse), values<T>(dqkv)};
#pragma omp parallel for schedule(dynamic) num_threads(int(threads))
    for (int64_t task = 0; task < tasks; ++task)
      differentiate_head(Head<T>(a, width, task / heads, task % heads), g,
                         memory + room.end * omp_get_thread_num());
  });
}

}  // namespace triax::host::TRIAX_LEVEL
