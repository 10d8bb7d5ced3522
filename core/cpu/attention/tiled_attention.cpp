#include "triax/core/cpu/attention/tiled_attention.h"

#include "triax/core/cpu/scratch.h"
#include "triax/core/cpu/tiled.h"
#include "triax/core/shared/team.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// Working arrays of one thread.
struct Room : Bytes {
  int64_t keys, values, queries, scores, weights, out, factors;
  Room(int64_t time, int64_t dim)  // time: of keys
      : keys(array<BFloat16>(strips_size(time, dim))),
        values(array<BFloat16>(strips_size(dim, time))),
        queries(array<BFloat16>(strips_size(side, dim))),
        scores(array<float>(squares_in(time) * square)),
        weights(array<BFloat16>(squares_in(time) * square)),
        out(array<float>(square)),
        factors(array<float>(RowFactors::room(time))) {}
};

/// A vector for each query, and what `combine` makes of each one's lanes.
struct Partial {
  Vector<float> of[side];
  template <class F> TRIAX_HD void combine(F f, float (&to)[side]) {
    for (int half = 0; half < 2; ++half) {
      Vector<float> rows[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) rows[i] = of[16 * half + i];
      transpose<float>(rows);
#pragma GCC unroll 4
      for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; ++i) rows[i] = f(rows[i], rows[i + n]);
      store<float>(to + 16 * half, rows[0]);
    }
  }
};

/// The state of each query of a block.
struct Queries {
  float largest[side], sum[side], inverse[side], lse[side];
};

/// Turns scores into unnormalised weights, as a left operand.
Queries soften(float* scores, const Block& block, float scale, RowFactors& factors,
               BFloat16* weights) {
  int64_t squares = squares_in(block.end - block.begin);
  Queries q;
  Partial most, sums;
  for (int i = 0; i < side; ++i) {
    float* row = scores + i * side;
    Vector<float> m = load<float>(row);
    for (int64_t j = 0; j < squares; ++j)
      for (int half = 0; half < 32; half += 16) {
        Vector<float> s = load<float>(row + j * square + half);
        m = s > m ? s : m;
      }
    most.of[i] = m;
  }
  most.combine([](Vector<float> a, Vector<float> b) { return a > b ? a : b; }, q.largest);
  for (int i = 0; i < side; ++i) {
    const float* factor = factors.any() ? factors.draw(block.first + i, block) : nullptr;
    float largest = q.largest[i], sum[side];
    for (int l = 0; l < side; ++l) sum[l] = 0;
    for (int64_t j = 0; j < squares; ++j) {
      float *row = scores + j * square + i * side, w[side];
      for (int l = 0; l < side; ++l) w[l] = fn::exp((row[l] - largest) * scale);
      for (int l = 0; l < side; ++l) sum[l] += w[l];
      if (factor)
        for (int l = 0; l < side; ++l) w[l] *= factor[j * side + l];
      store_row(weights + j * square + i * side, round_row(w), side);
    }
    sums.of[i] = load<float>(sum) + load<float>(sum + 16);
  }
  sums.combine([](Vector<float> a, Vector<float> b) { return a + b; }, q.sum);
  for (int l = 0; l < side; ++l) {
    q.lse[l] = q.largest[l] * scale + fn::log(q.sum[l]);
    q.inverse[l] = 1.f / q.sum[l];
  }
  return q;
}

/// Computes 32 queries from `first` on; keys and values are packed.
void attend(const Head16& h, int64_t first, char* m, BFloat16* y, float* lse) {
  Room r(h.band.keys, h.dim);
  Block b(h, first, side, side);
  int64_t steps = squares_in(h.dim), all = squares_in(h.band.keys);
  auto *queries = at<BFloat16>(m, r.queries), *weights = at<BFloat16>(m, r.weights);
  auto *scores = at<float>(m, r.scores), *out = at<float>(m, r.out);
  pack_strips<Part::left>(h.q.by_row(first), b.count, h.dim, queries);
  for (int64_t key = b.begin; key < b.end; key += side) {
    auto* keys = at<BFloat16>(m, r.keys) + key * steps * side;
    float* to = scores + (key - b.begin) * side;
    multiply_strips({queries, keys, steps}, {to, side}, Write::set);
    hide(h.band, first, key, to);
  }
  RowFactors factors(h, at<float>(m, r.factors));
  Queries q = soften(scores, b, h.scale, factors, weights);
  for (int64_t i = 0; i < b.count; ++i) lse[h.place(first + i)] = q.lse[i];
  BFloat16* to = y + h.place(first) * h.dim;
  for (int64_t d = 0; d < h.dim; d += side) {
    auto* values = at<BFloat16>(m, r.values) + (d * all + b.begin) * side;
    multiply_strips({weights, values, squares_in(b.end - b.begin)}, {out, side}, Write::set);
    write_square(out, q.inverse, b.count, h.dim - d, to + d, h.y_stride());
  }
}

}  // namespace

void TRIAX_SQUARES::Tiled::attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  if (a.in.q.dtype() != bf16 || a.time == 1) return Cpu::attention(a, y, lse);
  int64_t threads = threads_here(), keys = a.band.keys, dim = a.head_dim();
  Tasks tasks(a, side, threads);
  Room room(keys, dim);
  Scratch<char> scratch(room.end * threads);
  char* memory = scratch.data();
  auto* out = values<BFloat16>(y);
  auto* logs = values<float>(lse);
  in_turns(tasks.count, threads, [&](int64_t task, int64_t share) {
    Tiles tiles;
    char* mine = memory + room.end * share;
    Head16 h(a, task / tasks.parts * a.group());
    pack_strips<Part::right>(h.k.by_row(), keys, dim, at<BFloat16>(mine, room.keys));
    pack_strips<Part::right>(h.v.by_dim(), dim, keys, at<BFloat16>(mine, room.values));
    for (int64_t i = task % tasks.parts; i < tasks.of_group; i += tasks.parts)
      attend(h.further(i / tasks.blocks), i % tasks.blocks * side, mine, out, logs);
  });
}

}  // namespace triax::host::TRIAX_LEVEL
