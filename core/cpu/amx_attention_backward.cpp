#include <omp.h>

#include "core/cpu/amx.h"
#include "core/cpu/amx_attention.h"
#include "core/cpu/scratch.h"

// As attention_backward.cpp has it; sums of dK and dV are kept transposed, [dim][key], so that
// weights and their gradients are right operands, which pairs of rows make as they are rounded.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Working arrays of one thread.
struct Room : Bytes {
  int64_t keys, values, keys_by_dim;     // right operands, packed once a head
  int64_t queries, grads;                // left operands, over dims
  int64_t queries_by_dim, grads_by_dim;  // left operands, over queries
  int64_t weights, scores;               // one square in f32
  int64_t weights_right, scores_right;   // the same in bf16
  int64_t scores_left;                   // squares of a block of queries
  int64_t dk, dv;                        // sums [dims][keys] of squares
  int64_t factors;
  Room(int64_t time, int64_t dim)
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
  BFloat16* dqkv;          // [tokens, heads * 3 * dim]
};

/// What is known of each query of a block.
struct Queries {
  float lse[side] = {}, delta[side] = {};
  const float* factors[side] = {};  // by key; null without dropout
};

/// Elements at even and at odd places, as f32.
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

/// One square: scores to weights (as right operand) and the gradient of weights to that of scores
/// (as left and right operand). `diagonal`: where keys after the query are.
TRIAX_HD void differentiate(const float* scores, const float* grads, const Queries& q,
                            int64_t first_key, bool diagonal, float scale, BFloat16* weights,
                            BFloat16* left, BFloat16* right) {
  for (int i = 0; i < side; i += 2) {
    __m512i rounded[2], rounded_grad[2];
    for (int k = 0; k < 2; ++k) {
      const float *s = scores + (i + k) * side, *dp = grads + (i + k) * side;
      float w[side], g[side], lse = q.lse[i + k], delta = q.delta[i + k];
      int last = diagonal ? i + k : side;
      for (int l = 0; l < side; ++l) w[l] = fn::select(l > last, 0.f, fn::exp(s[l] * scale - lse));
      if (q.factors[i + k]) {
        const float* factor = q.factors[i + k] + first_key;
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

/// One block of queries: its dq, and its part of dk and dv.
void block(const Head16& h, const Gradients& g, int64_t first, char* m) {
  Room r(h.time, h.dim);
  int64_t count = fn::min<int64_t>(side, h.time - first), squares = first / side + 1;
  int64_t s = h.y_stride(), steps = squares_in(h.dim), strip = steps * square;
  const BFloat16 *query = h.q + first * h.stride, *y = g.y + h.y_offset() + first * s,
                 *dy = g.dy + h.y_offset() + first * s;
  Queries q;
  RowFactors factors(h, nullptr);
  for (int64_t i = 0; i < count; ++i) {
    q.lse[i] = g.lse[(h.token + first + i) * h.heads + h.head];
    q.delta[i] = dot(y + i * s, dy + i * s, h.dim);
    if (!factors.any()) continue;
    RowFactors row(h, at<float>(m, r.factors) + i * RowFactors::room(h.time));
    q.factors[i] = row.draw(first + i, squares * side);
  }
  auto *queries = at<BFloat16>(m, r.queries), *grads = at<BFloat16>(m, r.grads);
  auto *queries_by_dim = at<BFloat16>(m, r.queries_by_dim),
       *grads_by_dim = at<BFloat16>(m, r.grads_by_dim);
  pack_strips<Part::left>({query, h.stride, 1}, count, h.dim, queries);
  pack_strips<Part::left>({dy, s, 1}, count, h.dim, grads);
  pack_strips<Part::left>({query, 1, h.stride}, h.dim, count, queries_by_dim);
  pack_strips<Part::left>({dy, 1, s}, h.dim, count, grads_by_dim);
  auto *weights = at<float>(m, r.weights), *scores = at<float>(m, r.scores);
  auto *dk = at<float>(m, r.dk), *dv = at<float>(m, r.dv);
  auto *weights_right = at<BFloat16>(m, r.weights_right),
       *scores_right = at<BFloat16>(m, r.scores_right),
       *scores_left = at<BFloat16>(m, r.scores_left);
  for (int64_t j = 0; j < squares; ++j) {
    bool diagonal = j + 1 == squares;
    multiply_strips({queries}, at<BFloat16>(m, r.keys) + j * strip, steps, weights, side,
                    Write::set);
    multiply_strips({grads}, at<BFloat16>(m, r.values) + j * strip, steps, scores, side,
                    Write::set);
    differentiate(weights, scores, q, j * side, diagonal, h.scale, weights_right,
                  scores_left + j * square, scores_right);
    Write write = diagonal ? Write::set : Write::add;  // no query before this block sees these keys
    for (int64_t d = 0; d < steps; ++d) {
      int64_t sums = (d * squares_in(h.time) + j) * square;
      multiply_strips({grads_by_dim + d * square}, weights_right, 1, dv + sums, side, write);
      multiply_strips({queries_by_dim + d * square}, scores_right, 1, dk + sums, side, write);
    }
  }
  float one[side];
  for (float& x : one) x = 1;
  BFloat16* to = g.dqkv + (query - h.q) + h.token * h.stride + h.head * 3 * h.dim;
  for (int64_t d = 0; d < h.dim; d += side) {
    multiply_strips({scores_left}, at<BFloat16>(m, r.keys_by_dim) + d * squares_in(h.time) * side,
                    squares, scores, side, Write::set);
    write_square(scores, one, count, h.dim - d, to + d, h.stride);
  }
}

/// All of one head: dk and dv are summed over the blocks in order.
void differentiate_head(const Head16& h, const Gradients& g, char* m) {
  Room r(h.time, h.dim);
  pack_strips<Part::right>({h.k, h.stride, 1}, h.time, h.dim, at<BFloat16>(m, r.keys));
  pack_strips<Part::right>({h.v, h.stride, 1}, h.time, h.dim, at<BFloat16>(m, r.values));
  pack_strips<Part::right>({h.k, 1, h.stride}, h.dim, h.time, at<BFloat16>(m, r.keys_by_dim));
  for (int64_t first = 0; first < h.time; first += side) block(h, g, first, m);
  BFloat16* to = g.dqkv + h.token * h.stride + h.head * 3 * h.dim;
  const float *dk = at<float>(m, r.dk), *dv = at<float>(m, r.dv);
  for (int64_t d = 0; d < h.dim; d += side)
    for (int64_t j = 0; j < h.time; j += side, dk += square, dv += square) {
      write_turned(dk, h.time - j, h.dim - d, to + j * h.stride + h.dim + d, h.stride);
      write_turned(dv, h.time - j, h.dim - d, to + j * h.stride + 2 * h.dim + d, h.stride);
    }
}

}  // namespace

void Amx::causal_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                    const Tensor& dy, const Tensor& dqkv) {
  if (a.qkv.dtype() != bf16) return Cpu::causal_attention_backward(a, y, lse, dy, dqkv);
  int64_t width = a.qkv.size(1), heads = a.heads(), tasks = a.qkv.size(0) / a.time * heads;
  int64_t threads = fn::min<int64_t>(omp_get_max_threads(), tasks + 1);
  Room room(a.time, a.head_dim);
  Scratch<char> scratch(room.end * threads);
  char* memory = scratch.data();
  Gradients g{values<BFloat16>(y), values<BFloat16>(dy), values<float>(lse),
              values<BFloat16>(dqkv)};
#pragma omp parallel num_threads(int(threads))
  {
    Tiles tiles;
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < tasks; ++task)
      differentiate_head(Head16(a, width, task / heads, task % heads), g,
                         memory + room.end * omp_get_thread_num());
  }
}

}  // namespace triax::host::TRIAX_LEVEL
