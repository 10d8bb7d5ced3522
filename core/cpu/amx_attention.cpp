#include "core/cpu/amx_attention.h"

#include <omp.h>

#include "core/cpu/amx.h"
#include "core/cpu/scratch.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// Working arrays of one thread.
struct Room : Bytes {
  int64_t keys, values, queries, scores, weights, out, factors;
  Room(int64_t time, int64_t dim)
      : keys(array<BFloat16>(strips_size(time, dim))),
        values(array<BFloat16>(strips_size(dim, time))),
        queries(array<BFloat16>(strips_size(side, dim))),
        scores(array<float>(squares_in(time) * square)),
        weights(array<BFloat16>(squares_in(time) * square)),
        out(array<float>(square)),
        factors(array<float>(RowFactors::room(time))) {}
};

struct Row {
  float largest, sum;
};

/// Scores of one query, squares apart, to unnormalised weights, in place.
TRIAX_HD Row soften(float* scores, int64_t squares, float scale) {
  float most[side], sum[side];
  for (int l = 0; l < side; ++l) most[l] = -__builtin_inff(), sum[l] = 0;
  for (int64_t j = 0; j < squares; ++j)
    for (int l = 0; l < side; ++l) most[l] = fn::max(scores[j * square + l], most[l]);
  float largest = max_of<float>(side, [&](int64_t l) { return most[l]; });
  for (int64_t j = 0; j < squares; ++j)
    for (int l = 0; l < side; ++l)
      sum[l] += scores[j * square + l] = fn::exp((scores[j * square + l] - largest) * scale);
  return {largest, sum_of<float>(side, [&](int64_t l) { return sum[l]; })};
}

/// 32 queries from `first` on; keys and values are packed.
void attend(const Head16& h, int64_t first, char* m, BFloat16* y, float* lse) {
  Room r(h.time, h.dim);
  int64_t count = fn::min<int64_t>(side, h.time - first), squares = first / side + 1;
  int64_t steps = squares_in(h.dim), strip = steps * square;
  auto *queries = at<BFloat16>(m, r.queries), *weights = at<BFloat16>(m, r.weights);
  auto *scores = at<float>(m, r.scores), *out = at<float>(m, r.out);
  pack_strips<Part::left>({h.q + first * h.stride, h.stride, 1}, count, h.dim, queries);
  for (int64_t j = 0; j < squares; ++j)
    multiply_strips(queries, at<BFloat16>(m, r.keys) + j * strip, steps, scores + j * square, side,
                    Write::set);
  RowFactors factors(h, at<float>(m, r.factors));
  float inverse[side];
  for (int64_t i = 0; i < count; ++i) {
    float* row = scores + i * side;
    for (int64_t l = i + 1; l < side; ++l) row[(squares - 1) * square + l] = -__builtin_inff();
    Row s = soften(row, squares, h.scale);
    lse[(h.token + first + i) * h.heads + h.head] = s.largest * h.scale + fn::log(s.sum);
    inverse[i] = 1.f / s.sum;
    if (factors.any()) {
      const float* factor = factors.draw(first + i, squares * side);
      for (int64_t j = 0; j < squares; ++j)
        for (int l = 0; l < side; ++l) row[j * square + l] *= factor[j * side + l];
    }
    for (int64_t j = 0; j < squares; ++j)
      store_row(weights + j * square + i * side, round_row(row + j * square), side);
  }
  BFloat16* to = y + h.y_offset() + first * h.y_stride();
  for (int64_t d = 0; d < h.dim; d += side) {
    multiply_strips(weights, at<BFloat16>(m, r.values) + d * squares_in(h.time) * side, squares,
                    out, side, Write::set);
    write_square(out, inverse, count, h.dim - d, to + d, h.y_stride());
  }
}

}  // namespace

void Amx::causal_attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  if (a.qkv.dtype() != bf16) return Cpu::causal_attention(a, y, lse);
  int64_t width = a.qkv.size(1), heads = a.heads(), dim = a.head_dim;
  int64_t threads = omp_get_max_threads(), tasks = a.qkv.size(0) / a.time * heads;
  // With few heads the blocks of one are shared among threads, each of which packs it.
  int64_t blocks = squares_in(a.time);
  int64_t parts = tasks % threads == 0 || tasks > 4 * threads
                      ? 1
                      : fn::min(blocks, (4 * threads + tasks - 1) / tasks);
  Room room(a.time, dim);
  Scratch<char> scratch(room.end * threads);
  char* memory = scratch.data();
  auto* out = values<BFloat16>(y);
  auto* logs = values<float>(lse);
#pragma omp parallel num_threads(int(threads))
  {
    Tiles tiles;
    char* mine = memory + room.end * omp_get_thread_num();
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < tasks * parts; ++task) {
      Head16 h(a, width, task / parts / heads, task / parts % heads);
      pack_strips<Part::right>({h.k, h.stride, 1}, h.time, dim, at<BFloat16>(mine, room.keys));
      pack_strips<Part::right>({h.v, 1, h.stride}, dim, h.time, at<BFloat16>(mine, room.values));
      for (int64_t block = task % parts; block < blocks; block += parts)
        attend(h, block * side, mine, out, logs);
    }
  }
}

}  // namespace triax::host::TRIAX_LEVEL
