#pragma once
#include "triax/core/cpu/attention/attention.h"
#include "triax/core/cpu/products/multiply.h"
#include "triax/core/cpu/rows/row.h"

// Shared code of attention in tiles, forward and backward: 32 queries meet 32 keys at a time,
// scores [query][key] are f32, weights and gradients of scores are rounded to bf16 for the products
// they enter.
namespace triax::host::TRIAX_LEVEL {
namespace {

using Head16 = Head<BFloat16>;

/// Returns the number of squares that a length needs.
constexpr int64_t squares_in(int64_t length) { return (length + side - 1) / side; }

/// Offsets of working arrays, in bytes.
struct Bytes : Layout {
  template <class T> int64_t array(int64_t n) { return take(n * int64_t(sizeof(T))); }
};
template <class T> TRIAX_HD T* at(char* memory, int64_t offset) {
  return reinterpret_cast<T*>(memory + offset);
}

/// Dropout factors of one query.
class RowFactors {
 public:
  /// Returns the floats of working memory for `keys` keys.
  static int64_t room(int64_t keys) { return round_up(keys, side) + 8; }
  RowFactors(const Head16& h, float* memory) : mask_(h.mask), memory_(memory) {}
  bool any() const { return mask_.p > 0; }

  /// Returns mask.at of the head's query `query` for the keys of the block's squares.
  const float* draw(int64_t query, const Block& b) {
    uint64_t column = uint64_t(mask_.column + b.begin), row = uint64_t(mask_.row + query);
    uint64_t key = mask_.key, group = column / 4, skip = column % 4;
    int64_t groups = (int64_t(skip) + round_up(b.end - b.begin, side) + 3) / 4;
    float p = mask_.p, kept = 1.f / (1.f - p), *to = memory_;
#pragma omp simd
    for (int64_t g = 0; g < groups; ++g) {
      random::Words w = random::philox(key, row, group + uint64_t(g));
      to[4 * g] = fn::select(random::unit(w.x) < p, 0.f, kept);
      to[4 * g + 1] = fn::select(random::unit(w.y) < p, 0.f, kept);
      to[4 * g + 2] = fn::select(random::unit(w.z) < p, 0.f, kept);
      to[4 * g + 3] = fn::select(random::unit(w.w) < p, 0.f, kept);
    }
    return to + skip;
  }

 private:
  random::Mask mask_;
  float* memory_;
};

/// Sets the scores [query][key] of one square, of queries from `query` and keys from `key` on, to
/// -infinity where the key is not seen.
inline void hide(const Band& band, int64_t query, int64_t key, float* scores) {
  if (band.begin(query + side - 1) <= key && band.end(query) >= key + side) return;
  for (int i = 0; i < side; ++i, scores += side) {
    int from = int(band.begin(query + i) - key), to = int(band.end(query + i) - key);
    for (int l = 0; l < side; ++l)
      scores[l] = fn::select(l >= from && l < to, scores[l], -__builtin_inff());
  }
}

/// to[i][j] = from[i][j] * factor[i], in part of a square of sums.
inline __attribute__((always_inline)) void write_square(const float* from, const float* factor,
                                                        int64_t rows, int64_t cols, BFloat16* to,
                                                        int64_t stride) {
  for (int64_t i = 0; i < rows; ++i, from += side, to += stride) {
    float row[side];
    for (int l = 0; l < side; ++l) row[l] = from[l] * factor[i];
    store_row(to, round_row(row), cols);
  }
}

/// to[j][i] = from[i][j].
inline __attribute__((always_inline)) void write_turned(const float* from, int64_t rows,
                                                        int64_t cols, BFloat16* to,
                                                        int64_t stride) {
  for (int half = 0; half < 2; ++half) {
    Vector<float> low[16], high[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) low[i] = load<float>(from + i * side + 16 * half);
    transpose<float>(low);
    alignas(64) float turned[16][side];
    for (int i = 0; i < 16; ++i) store<float>(turned[i], low[i]);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) high[i] = load<float>(from + (16 + i) * side + 16 * half);
    transpose<float>(high);
    for (int i = 0; i < 16; ++i) store<float>(turned[i] + 16, high[i]);
    for (int64_t j = 16 * half; j < fn::min<int64_t>(rows, 16 * half + 16); ++j)
      store_row(to + j * stride, round_row(turned[j - 16 * half]), cols);
  }
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
