#pragma once
#include "triax/core/cpu/products/tile_registers.h"
#include "triax/core/cpu/products/tiles.h"

// Squares of products in AMX tiles. tdpbf16ps multiplies two of them; run only where the level
// `amx` is there.
namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr bool multiplies_f32 = true;
/// Whether rows of a may stand in memory, `a_row` elements apart.
constexpr bool takes_rows_in_place = true;
/// The cycles a square of bf16 takes, 32 deep.
constexpr int64_t square_cycles = 64;
/// The most depth of one pass of bf16: a strip of a fills half of the first-level cache.
constexpr int64_t pass_depth = 384;
/// The rows, columns and depth of bf16 below which a product is faster without squares.
constexpr int64_t least_of_bf16 = 1;

/// sums = or += a b. Once a step it calls meanwhile(), which keeps the vector units busy.
template <class F = Nothing>
TRIAX_HD void multiply_strips(const Strips& strips, const SumSquare& sums, Write write,
                              F meanwhile = {}) {
  float *c = sums.data, *below = sums.below();
  int64_t bytes = sums.bytes();
  if (write == Write::add) {
    load_tile<0>(c, bytes);
    load_tile<1>(c + 16, bytes);
    load_tile<2>(below, bytes);
    load_tile<3>(below + 16, bytes);
  } else {
    zero_tile<0>();
    zero_tile<1>();
    zero_tile<2>();
    zero_tile<3>();
  }
  const BFloat16 *a = strips.a, *b = strips.b;
  int64_t a_bytes = strips.a_row * int64_t(sizeof(BFloat16)), a_below = 16 * strips.a_row;
  for (int64_t k = 0; k < strips.steps; ++k, a += strips.a_step, b += square) {
    load_tile<4>(a, a_bytes);
    load_tile<6>(b, 64);
    multiply_tiles<0, 4, 6>();
    load_tile<7>(b + tile_elements, 64);
    multiply_tiles<1, 4, 7>();
    load_tile<5>(a + a_below, a_bytes);
    multiply_tiles<2, 5, 6>();
    multiply_tiles<3, 5, 7>();
    meanwhile();
  }
  store_tile<0>(c, bytes);
  store_tile<1>(c + 16, bytes);
  store_tile<2>(below, bytes);
  store_tile<3>(below + 16, bytes);
}

/// sums [32][16] = the sum of each row of a strip, 16 times.
inline void multiply_ones(const Strips& strips, float* sums) {
  alignas(64) BFloat16 ones[tile_elements];
  for (BFloat16& x : ones) x = BFloat16(1.f);
  load_tile<6>(ones, 64);
  zero_tile<0>();
  zero_tile<1>();
  int64_t bytes = strips.a_row * int64_t(sizeof(BFloat16));
  const BFloat16* a = strips.a;
  for (int64_t k = 0; k < strips.steps; ++k, a += strips.a_step) {
    load_tile<4>(a, bytes);
    multiply_tiles<0, 4, 6>();
    load_tile<5>(a + 16 * strips.a_row, bytes);
    multiply_tiles<1, 5, 6>();
  }
  store_tile<0>(sums, 64);
  store_tile<1>(sums + 16 * 16, 64);
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
