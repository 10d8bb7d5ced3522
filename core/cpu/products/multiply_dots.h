#pragma once
#include "triax/core/cpu/products/tiles.h"

// Squares of products of bf16 by vdpbf16ps, which adds to each f32 the products of a pair of a and
// a pair of b (Intel, "Architecture instruction set extensions programming reference", chapter 2).
// Run only where the level `avx512_bf16` is there.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Not f32: six products of its terms would take three times as long as fused products.
constexpr bool multiplies_f32 = false;
/// Whether rows of a may stand in memory, `a_row` elements apart.
constexpr bool takes_rows_in_place = false;
/// The cycles a square of bf16 takes, 32 deep.
constexpr int64_t square_cycles = 1024;
/// The most depth of one pass: a strip of b and rows_at_once of a fill most of 32 KiB.
constexpr int64_t pass_depth = 256;
/// The rows, columns and depth below which a square, half empty, would save nothing.
constexpr int64_t least_of_bf16 = 16;

/// Nothing has to be set up for vectors.
struct Tiles {
  Tiles() {}
};

/// The rows whose sums, two vectors each, stay in registers beside a pair of a and two of b.
constexpr int rows_at_once = 12;

TRIAX_HD __m512bh load_pairs(const BFloat16* from) { return __m512bh(_mm512_loadu_si512(from)); }
TRIAX_HD __m512bh broadcast_pair(const BFloat16* from) {
  int pair;
  __builtin_memcpy(&pair, from, sizeof(pair));
  return __m512bh(_mm512_set1_epi32(pair));
}

/// c [rows][32] = or += rows of a packed strip times b.
template <int rows>
__attribute__((noinline)) void multiply_rows(const Strips& strips, int first, float* c,
                                             int64_t stride, Write write) {
  __m512 sums[rows][2];
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i)
    for (int half = 0; half < 2; ++half)
      sums[i][half] =
          write == Write::add ? _mm512_loadu_ps(c + i * stride + 16 * half) : _mm512_setzero_ps();
  const BFloat16 *a = strips.a + first * side, *b = strips.b;
  for (int64_t k = 0; k < strips.steps; ++k, a += square, b += square)
    for (int pair = 0; pair < 16; ++pair) {
      __m512bh left = load_pairs(b + pair * side),
               right = load_pairs(b + tile_elements + pair * side);
#pragma GCC unroll 12
      for (int i = 0; i < rows; ++i) {
        __m512bh x = broadcast_pair(a + i * side + 2 * pair);
        sums[i][0] = _mm512_dpbf16_ps(sums[i][0], x, left);
        sums[i][1] = _mm512_dpbf16_ps(sums[i][1], x, right);
      }
    }
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i)
    for (int half = 0; half < 2; ++half)
      _mm512_storeu_ps(c + i * stride + 16 * half, sums[i][half]);
}

/// sums = or += a b, of packed strips. Once a step it calls meanwhile(), after the product: both
/// use the vector units.
template <class F = Nothing>
TRIAX_HD void multiply_strips(const Strips& strips, const SumSquare& sums, Write write,
                              F meanwhile = {}) {
  int first = 0;
  for (; first + rows_at_once <= side; first += rows_at_once)
    multiply_rows<rows_at_once>(strips, first, sums.data + first * sums.stride, sums.stride, write);
  multiply_rows<side % rows_at_once>(strips, first, sums.data + first * sums.stride, sums.stride,
                                     write);
  for (int64_t k = 0; k < strips.steps; ++k) meanwhile();
}

/// sums [32][16] = the sum of each row of a packed strip, 16 times.
inline void multiply_ones(const Strips& strips, float* sums) {
  constexpr int one = 0x3f80;  // of bf16
  __m512bh ones = __m512bh(_mm512_set1_epi32(one << 16 | one));
  for (int i = 0; i < side; ++i) {
    __m512 parts = _mm512_setzero_ps();
    for (int64_t k = 0; k < strips.steps; ++k)
      parts = _mm512_dpbf16_ps(parts, load_pairs(strips.a + k * square + i * side), ones);
    float sum = 0;
    for (int l = 0; l < 16; ++l) sum += parts[l];
    for (int l = 0; l < 16; ++l) sums[i * 16 + l] = sum;
  }
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
