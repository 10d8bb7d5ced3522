#include "core/cpu/attention.h"

#include <omp.h>

#include "core/cpu/scratch.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// Working arrays of one thread.
template <class A> struct Room : Layout {
  static constexpr int rows = Tile<A>::rows, cols = Tile<A>::cols;
  int64_t keys, values, queries, scores, out;
  Room(int64_t time, int64_t dim)
      : keys(take(packed_size<A, rows>(time, dim))),
        values(take(packed_size<A, rows>(dim, time))),
        queries(take(packed_size<A, cols>(cols, dim))),
        scores(take(round_up(time, rows) * cols)),
        out(take(round_up(dim, rows) * cols)) {}
};

/// Scores [keys][queries] to unnormalised weights, in place; their sums, and log of them.
template <class A, int n>
void soften(A* scores, int64_t keys, int64_t first_query, A scale, A (&sum)[n], A (&lse)[n]) {
  A largest[n];
  for (int l = 0; l < n; ++l) largest[l] = -A(__builtin_inff()), sum[l] = 0;
  for (int64_t j = first_query + 1; j < keys; ++j)  // keys that come after some of the queries
    for (int l = 0; l < n; ++l)
      if (first_query + l < j) scores[j * n + l] = -A(__builtin_inff());
  for (int64_t j = 0; j < keys; ++j)
    for (int l = 0; l < n; ++l) largest[l] = fn::max(largest[l], scores[j * n + l]);
  for (int64_t j = 0; j < keys; ++j)
    for (int l = 0; l < n; ++l)
      sum[l] += scores[j * n + l] = fn::exp((scores[j * n + l] - largest[l]) * scale);
  for (int l = 0; l < n; ++l) lse[l] = largest[l] * scale + fn::log(sum[l]);
}

/// The block of queries from `first` on; keys and values are packed.
template <class T, class A = Accumulator<T>>
void attend(const Head<T>& h, int64_t first, A* memory, T* y, A* lse) {
  constexpr int n = Tile<A>::cols;
  Room<A> room(h.time, h.dim);
  A *queries = memory + room.queries, *scores = memory + room.scores, *out = memory + room.out;
  int64_t count = fn::min<int64_t>(n, h.time - first), keys = first + count;
  pack<A, n>(Operand<T>{h.q + first * h.stride, h.stride, 1}, count, h.dim, queries);
  multiply_panels<A>(memory + room.keys, keys, h.dim, queries, h.dim, scores);
  A sum[n], logs[n];
  soften(scores, keys, first, h.scale, sum, logs);
  Factors<A> factors(h.mask, h.token + first, h.column);
  if (factors.any())
    for (int64_t j = 0; j < keys; ++j) {
      A factor[n];
      factors.of_key(j, factor);
      for (int l = 0; l < n; ++l) scores[j * n + l] *= factor[l];
    }
  multiply_panels<A>(memory + room.values, h.dim, h.time, scores, keys, out);
  for (int l = 0; l < n; ++l) sum[l] = A(1) / sum[l];
  write_queries<T>(out, h.dim, count, sum, y + h.y_offset() + first * h.y_stride(), h.y_stride());
  for (int64_t l = 0; l < count; ++l) lse[(h.token + first + l) * h.heads + h.head] = logs[l];
}

}  // namespace

void Cpu::causal_attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  visit_float(a.qkv.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    constexpr int n = Tile<A>::cols;
    int64_t tokens = a.qkv.size(0), width = a.qkv.size(1), heads = a.heads(), dim = a.head_dim;
    int64_t threads = omp_get_max_threads(), tasks = tokens / a.time * heads;
    // With few heads the blocks of one are shared among threads, each of which packs it.
    int64_t blocks = (a.time + n - 1) / n;
    int64_t parts = tasks % threads == 0 || tasks > 4 * threads
                        ? 1
                        : fn::min(blocks, (4 * threads + tasks - 1) / tasks);
    Room<A> room(a.time, dim);
    Scratch<A> scratch(room.end * threads);
    A* memory = scratch.data();
    T* out = values<T>(y);
    A* logs = values<A>(lse);
#pragma omp parallel for schedule(dynamic) num_threads(int(threads))
    for (int64_t task = 0; task < tasks * parts; ++task) {
      A* mine = memory + room.end * omp_get_thread_num();
      Head<T> h(a, width, task / parts / heads, task / parts % heads);
      pack<A, Tile<A>::rows>(Operand<T>{h.k, h.stride, 1}, h.time, dim, mine + room.keys);
      pack<A, Tile<A>::rows>(Operand<T>{h.v, 1, h.stride}, dim, h.time, mine + room.values);
      for (int64_t block = task % parts; block < blocks; block += parts)
        attend(h, block * n, mine, out, logs);
    }
  });
}

}  // namespace triax::host::TRIAX_LEVEL
