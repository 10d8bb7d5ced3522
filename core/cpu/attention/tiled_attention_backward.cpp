#include "triax/core/cpu/attention/tiled_attention.h"
#include "triax/core/cpu/scratch.h"
#include "triax/core/cpu/tiled.h"
#include "triax/core/shared/team.h"

// The algorithm of attention_backward.cpp; sums of dK and dV are kept transposed, [dim][key], so
// that weights and their gradients are right operands, which pairs of rows make as they are
// rounded.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Working arrays of one thread.
struct Room : Bytes {
  int64_t keys, values, keys_by_dim;     // right operands, packed once a head
  int64_t queries, grads;                // left operands, over dims
  int64_t queries_by_dim, grads_by_dim;  // left operands, over queries
  int64_t weights, scores;               // one square in f32
  int64_t weights_right, scores_right;   // the two above in bf16
  int64_t scores_left;                   // squares of a block of queries
  int64_t dk, dv;                        // sums [dims][keys] of squares
  int64_t factors;
  Room(int64_t time, int64_t dim)  // time: of keys
      : keys(array<BFloat16>(strips_size(time, dim))),
        values(array<BFloat16>(strips_size(time, dim))),
        keys_by_dim(array<BFloat16>(strips_size(dim, time))),
        queries(array<BFloat16>(strips_size(side, dim))),
        grads(array<BFloat16>(strips_size(side, dim))),
        queries_by_dim(array<BFloat16>(strips_size(dim, side))),
        grads_by_dim(array<BFloat16>(strips_size(dim, side))),
        weights(array<float>(square)),
        scores(array<float>(square)),
        weights_right(array<BFloat16>(square)),
        scores_right(array<BFloat16>(square)),
        scores_left(array<BFloat16>(strips_size(side, time))),
        dk(array<float>(strips_size(time, dim))),
        dv(array<float>(strips_size(time, dim))),
        factors(array<float>(side * RowFactors::room(time))) {}
};

struct Gradients {
  const BFloat16 *y, *dy;  // [tokens, heads * dim]
  const float* lse;        // [tokens, heads]
  const Qkv& d;
};

/// The state of each query of a block.
struct Queries {
  float lse[side] = {}, delta[side] = {};
  const float* factors[side] = {};  // from the block's first key on; null without dropout
};

/// Converts elements at even and at odd places to f32.
TRIAX_HD void split(__m512i row, Vector<float>& even, Vector<float>& odd) {
  using Words = uint32_t __attribute__((vector_size(64)));
  even = Vector<float>(Words(row) << 16);
  odd = Vector<float>(Words(row) & 0xffff0000u);
}

TRIAX_HD float dot(const BFloat16* a, const BFloat16* b, int64_t n) {
  Vector<float> sums{}, x[2], y[2];
  for (int64_t i = 0; i < n; i += side) {
    split(load_row(a + i, n - i), x[0], x[1]);
    split(load_row(b + i, n - i), y[0], y[1]);
    sums = fma(x[0], y[0], fma(x[1], y[1], sums));
  }
  return sum_of<float>(16, [&](int64_t l) { return sums[l]; });
}

/// Turns, in one square, scores into weights (right operand) and the gradient of weights into that
/// of scores (left and right operand). `key`: the square's first, counted from the block's first.
TRIAX_HD void differentiate(const float* scores, const float* grads, const Queries& q, int64_t key,
                            float scale, BFloat16* weights, BFloat16* left, BFloat16* right) {
  for (int i = 0; i < side; i += 2) {
    __m512i rounded[2], rounded_grad[2];
    for (int k = 0; k < 2; ++k) {
      const float *s = scores + (i + k) * side, *dp = grads + (i + k) * side;
      float w[side], g[side], lse = q.lse[i + k], delta = q.delta[i + k];
      for (int l = 0; l < side; ++l) w[l] = fn::exp(s[l] * scale - lse);
      if (q.factors[i + k]) {
        const float* factor = q.factors[i + k] + key;
        for (int l = 0; l < side; ++l) g[l] = w[l] * (dp[l] * factor[l] - delta) * scale;
        for (int l = 0; l < side; ++l) w[l] *= factor[l];
      } else {
        for (int l = 0; l < side; ++l) g[l] = w[l] * (dp[l] - delta) * scale;
      }
      rounded[k] = round_row(w);
      rounded_grad[k] = round_row(g);
      store_row(left + (i + k) * side, rounded_grad[k], side);
    }
    __m512i half[2];
    interleave(rounded[0], rounded[1], half[0], half[1]);
    store_row(weights + i * 16, half[0], side);
    store_row(weights + tile_elements + i * 16, half[1], side);
    interleave(rounded_grad[0], rounded_grad[1], half[0], half[1]);
    store_row(right + i * 16, half[0], side);
    store_row(right + tile_elements + i * 16, half[1], side);
  }
}

/// Gathers the state of the queries of a block.
Queries know(const Head16& h, const Gradients& g, const Block& b, float* memory) {
  Queries q;
  int64_t room = RowFactors::room(h.band.keys);
  for (int64_t i = 0; i < b.count; ++i) {
    int64_t place = h.place(b.first + i);
    q.lse[i] = g.lse[place];
    q.delta[i] = dot(g.y + place * h.dim, g.dy + place * h.dim, h.dim);
    RowFactors row(h, memory + i * room);
    if (row.any()) q.factors[i] = row.draw(b.first + i, b);
  }
  return q;
}

/// Computes the dq of one block of queries and its part of dk and dv, which squares of keys before
/// `begun` already have.
void differentiate_block(const Head16& h, const Gradients& g, const Block& b, int64_t begun,
                         char* m) {
  Room r(h.band.keys, h.dim);
  int64_t steps = squares_in(h.dim), all = squares_in(h.band.keys);
  Queries q = know(h, g, b, at<float>(m, r.factors));
  auto *queries = at<BFloat16>(m, r.queries), *grads = at<BFloat16>(m, r.grads);
  auto *queries_by_dim = at<BFloat16>(m, r.queries_by_dim),
       *grads_by_dim = at<BFloat16>(m, r.grads_by_dim);
  const BFloat16* dy = g.dy + h.place(b.first) * h.dim;
  pack_strips<Part::left>(h.q.by_row(b.first), b.count, h.dim, queries);
  pack_strips<Part::left>({dy, h.y_stride(), 1}, b.count, h.dim, grads);
  pack_strips<Part::left>(h.q.by_dim(b.first), h.dim, b.count, queries_by_dim);
  pack_strips<Part::left>({dy, 1, h.y_stride()}, h.dim, b.count, grads_by_dim);
  auto *weights = at<float>(m, r.weights), *scores = at<float>(m, r.scores);
  auto *dk = at<float>(m, r.dk), *dv = at<float>(m, r.dv);
  auto *weights_right = at<BFloat16>(m, r.weights_right),
       *scores_right = at<BFloat16>(m, r.scores_right),
       *scores_left = at<BFloat16>(m, r.scores_left);
  for (int64_t key = b.begin; key < b.end; key += side) {
    int64_t packed = key * steps * side, here = key - b.begin;
    multiply_strips({queries, at<BFloat16>(m, r.keys) + packed, steps}, {weights, side},
                    Write::set);
    multiply_strips({grads, at<BFloat16>(m, r.values) + packed, steps}, {scores, side}, Write::set);
    hide(h.band, b.first, key, weights);
    differentiate(weights, scores, q, here, h.scale, weights_right, scores_left + here * side,
                  scores_right);
    Write write = key < begun ? Write::add : Write::set;
    for (int64_t d = 0; d < steps; ++d) {
      int64_t sums = d * all * square + key * side;
      multiply_strips({grads_by_dim + d * square, weights_right, 1}, {dv + sums, side}, write);
      multiply_strips({queries_by_dim + d * square, scores_right, 1}, {dk + sums, side}, write);
    }
  }
  float one[side];
  for (float& x : one) x = 1;
  Rows<BFloat16> dq(g.d.q, h.token, h.head);
  for (int64_t d = 0; d < h.dim; d += side) {
    auto* keys = at<BFloat16>(m, r.keys_by_dim) + (d * all + b.begin) * side;
    multiply_strips({scores_left, keys, squares_in(b.end - b.begin)}, {scores, side}, Write::set);
    write_square(scores, one, b.count, h.dim - d, dq.at(b.first) + d, dq.stride);
  }
}

/// Computes all query heads of one key-value head: dk and dv are summed over them and their blocks
/// in order. `task` counts key-value heads, and these in sequences.
void differentiate_group(const Attention& a, const Gradients& g, int64_t task, char* m) {
  int64_t group = a.group(), keys = a.band.keys, dim = a.head_dim();
  Head16 head(a, task * group);
  Room r(keys, dim);
  pack_strips<Part::right>(head.k.by_row(), keys, dim, at<BFloat16>(m, r.keys));
  pack_strips<Part::right>(head.v.by_row(), keys, dim, at<BFloat16>(m, r.values));
  pack_strips<Part::right>(head.k.by_dim(), dim, keys, at<BFloat16>(m, r.keys_by_dim));
  float *dk = at<float>(m, r.dk), *dv = at<float>(m, r.dv);
  if (a.band.begin(0) > 0)  // keys that no query sees
    for (int64_t i = 0; i < strips_size(keys, dim); ++i) dk[i] = dv[i] = 0;
  int64_t begun = 0;
  for (int64_t i = 0; i < group; ++i) {
    Head16 h = head.further(i);
    for (int64_t first = 0; first < h.time; first += side) {
      Block b(h, first, side, side);
      differentiate_block(h, g, b, begun, m);
      begun = fn::max(begun, b.end);
    }
  }
  Rows<BFloat16> to_k(g.d.k, head.key_token, head.head / group),
      to_v(g.d.v, head.key_token, head.head / group);
  for (int64_t d = 0; d < dim; d += side)
    for (int64_t j = 0; j < keys; j += side, dk += square, dv += square) {
      write_turned(dk, keys - j, dim - d, to_k.at(j) + d, to_k.stride);
      write_turned(dv, keys - j, dim - d, to_v.at(j) + d, to_v.stride);
    }
}

}  // namespace

void TRIAX_SQUARES::Tiled::attention_backward(const Attention& a, const Tensor& y,
                                              const Tensor& lse, const Tensor& dy, const Qkv& d) {
  if (a.in.q.dtype() != bf16) return Cpu::attention_backward(a, y, lse, dy, d);
  int64_t tasks = a.sequences() * a.kv_heads();
  int64_t threads = fn::max<int64_t>(1, fn::min<int64_t>(threads_here(), tasks));
  Room room(a.band.keys, a.head_dim());
  Scratch<char> scratch(room.end * threads);
  char* memory = scratch.data();
  Gradients g{values<BFloat16>(y), values<BFloat16>(dy), values<float>(lse), d};
  in_turns(tasks, threads, [&](int64_t task, int64_t share) {
    Tiles tiles;
    differentiate_group(a, g, task, memory + room.end * share);
  });
}

}  // namespace triax::host::TRIAX_LEVEL
