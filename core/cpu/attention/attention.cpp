#include "triax/core/cpu/attention/attention.h"

#include "triax/core/cpu/parallel.h"
#include "triax/core/cpu/products/row_product.h"
#include "triax/core/cpu/rows/row.h"
#include "triax/core/cpu/scratch.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// Working arrays of one thread.
template <class A> struct Room : Layout {
  static constexpr int rows = Tile<A>::rows, cols = Tile<A>::cols;
  int64_t keys, values, queries, scores, out;
  Room(int64_t time, int64_t dim)  // time: of keys
      : keys(take(packed_size<A, rows>(time, dim))),
        values(take(packed_size<A, rows>(dim, time))),
        queries(take(packed_size<A, cols>(cols, dim))),
        scores(take(round_up(time, rows) * cols)),
        out(take(round_up(dim, rows) * cols)) {}
};

/// Turns scores [keys][queries] into unnormalised weights, in place; returns their sums and logs.
template <class A, int n> void soften(A* scores, int64_t keys, A scale, A (&sum)[n], A (&lse)[n]) {
  A largest[n];
  for (int l = 0; l < n; ++l) largest[l] = -A(__builtin_inff()), sum[l] = 0;
  for (int64_t j = 0; j < keys; ++j)
    for (int l = 0; l < n; ++l) largest[l] = fn::max(largest[l], scores[j * n + l]);
  for (int64_t j = 0; j < keys; ++j)
    for (int l = 0; l < n; ++l)
      sum[l] += scores[j * n + l] = fn::exp((scores[j * n + l] - largest[l]) * scale);
  for (int l = 0; l < n; ++l) lse[l] = largest[l] * scale + fn::log(sum[l]);
}

/// Computes the block of queries from `first` on; keys and values are packed.
template <class T, class A = Accumulator<T>>
void attend(const Head<T>& h, int64_t first, A* memory, T* y, A* lse) {
  constexpr int n = Tile<A>::cols, rows = Tile<A>::rows;
  Room<A> room(h.band.keys, h.dim);
  A *queries = memory + room.queries, *scores = memory + room.scores, *out = memory + room.out;
  Block b(h, first, n, rows);
  int64_t keys = b.end - b.begin;
  pack<A, n>(h.q.by_row(first), b.count, h.dim, queries);
  multiply_panels<A>(memory + room.keys + b.begin * h.dim, keys, h.dim, queries, h.dim, scores);
  hide(h.band, b, b.end, scores);
  A sum[n], logs[n];
  soften(scores, keys, h.scale, sum, logs);
  Factors<A> factors(h.mask, first);
  if (factors.any())
    for (int64_t j = 0; j < keys; ++j) {
      A factor[n];
      factors.of_key(b.begin + j, factor);
      for (int l = 0; l < n; ++l) scores[j * n + l] *= factor[l];
    }
  multiply_panels<A>(memory + room.values + b.begin * rows, h.dim, h.band.keys, scores, keys, out);
  for (int l = 0; l < n; ++l) sum[l] = A(1) / sum[l];
  write_queries<T>(out, h.dim, b.count, sum, y + h.place(first) * h.dim, h.y_stride());
  for (int64_t l = 0; l < b.count; ++l) lse[h.place(first + l)] = logs[l];
}

/// Computes the only query of a head, as decoding has it. Keys and values are read in place.
template <class T, class A = Accumulator<T>> void attend_alone(const Head<T>& h, T* y, A* lse) {
  constexpr int n = lanes<A>;
  int64_t begin = h.band.begin(0), keys = h.band.end(0) - begin, dim = h.dim;
  int64_t width = whole_vectors<A>(dim);
  Scratch<A> scratch(2 * width + whole_vectors<A>(keys));
  A *query = scratch.data(), *out = query + width, *weights = out + width;
  widen(h.q.data, 1, dim, query);
  for (int64_t j = 0; j < keys; j += n)
    store<A>(weights + j,
             multiply_columns<A>(query, h.k.by_row(begin + j), fn::min<int64_t>(n, keys - j), dim));
  A largest = max_of<A>(keys, [=](int64_t j) { return weights[j]; }), scale = h.scale;
  for (int64_t j = 0; j < keys; ++j) weights[j] = fn::exp((weights[j] - largest) * scale);
  A sum = sum_of<A>(keys, [=](int64_t j) { return weights[j]; }), part = A(1) / sum;
  if (h.mask.p > 0)
    for (int64_t j = 0; j < keys; ++j) weights[j] *= A(h.mask.at(0, begin + j));
  for (int64_t d = 0; d < dim; ++d) out[d] = 0;
  for (int64_t j = 0; j < keys; ++j) {
    const T* value = h.v.at(begin + j);
    A weight = weights[j];
    for (int64_t d = 0; d < dim; ++d) out[d] = fn::fma(weight, convert<A>(value[d]), out[d]);
  }
  y += h.place(0) * dim;
  for (int64_t d = 0; d < dim; ++d) y[d] = convert<T>(out[d] * part);
  lse[h.place(0)] = largest * scale + fn::log(sum);
}

/// Computes sequences of one query each.
template <class T> void attend_alone(const Attention& a, const Tensor& y, const Tensor& lse) {
  constexpr int64_t work_of_a_piece = 1 << 17;
  T* out = values<T>(y);
  auto* logs = values<Accumulator<T>>(lse);
  parallel_each(a.sequences() * a.heads(), work_of_a_piece / (a.band.keys * a.head_dim() + 1) + 1,
                [&a, out, logs](int64_t i) { attend_alone(Head<T>(a, i), out, logs); });
}

}  // namespace

void Cpu::attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  visit_float(a.in.q.dtype(), [&]<class T>() {
    if (a.time == 1) return attend_alone<T>(a, y, lse);
    using A = Accumulator<T>;
    constexpr int n = Tile<A>::cols, rows = Tile<A>::rows;
    int64_t threads = threads_here(), keys = a.band.keys, dim = a.head_dim();
    Tasks tasks(a, n, threads);
    Room<A> room(keys, dim);
    Scratch<A> scratch(room.end * threads);
    A* memory = scratch.data();
    T* out = values<T>(y);
    A* logs = values<A>(lse);
    in_turns(tasks.count, threads, [&](int64_t task, int64_t share) {
      A* mine = memory + room.end * share;
      Head<T> h(a, task / tasks.parts * a.group());
      pack<A, rows>(h.k.by_row(), keys, dim, mine + room.keys);
      pack<A, rows>(h.v.by_dim(), dim, keys, mine + room.values);
      for (int64_t i = task % tasks.parts; i < tasks.of_group; i += tasks.parts)
        attend(h.further(i / tasks.blocks), i % tasks.blocks * n, mine, out, logs);
    });
  });
}

}  // namespace triax::host::TRIAX_LEVEL
