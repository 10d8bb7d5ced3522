#pragma once
#include "triax/core/cpu/products/bf16_terms.h"
#include "triax/core/cpu/products/tile_registers.h"

// Squares of products of f32, whose terms are in AMX tiles.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Says which tiles a square of products loads; the others are still in registers.
enum class Fresh { both, left, right };

/// Adds term `l` of a times term `r` of b, each tile loaded just before its first use.
template <int l, int r, Fresh fresh>
TRIAX_HD void multiply_square(const BFloat16* a, const BFloat16* b) {
  constexpr bool left = fresh != Fresh::right, right = fresh != Fresh::left;
  if constexpr (left) load_tile<4>(a + l * square, 64);
  if constexpr (right) load_tile<6>(b + r * square, 64);
  multiply_tiles<0, 4, 6>();
  if constexpr (right) load_tile<7>(b + r * square + tile_elements, 64);
  multiply_tiles<1, 4, 7>();
  if constexpr (left) load_tile<5>(a + l * square + tile_elements, 64);
  multiply_tiles<2, 5, 6>();
  multiply_tiles<3, 5, 7>();
}

/// sums = a b, of strips of terms: [step][term][two tiles]. Products of small terms come before
/// larger ones, in an order in which most stay in their tiles. Six times a step it calls
/// meanwhile(), which keeps the vector units busy.
template <class F>
TRIAX_HD void multiply_terms(const Strips& strips, const SumSquare& sums, F meanwhile) {
  const BFloat16 *a = strips.a, *b = strips.b;
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
  for (int64_t k = 0; k < strips.steps; ++k, a += terms * square, b += terms * square) {
    multiply_square<0, 2, Fresh::both>(a, b);
    meanwhile();
    multiply_square<0, 1, Fresh::right>(a, b);
    meanwhile();
    multiply_square<1, 1, Fresh::left>(a, b);
    meanwhile();
    multiply_square<1, 0, Fresh::right>(a, b);
    meanwhile();
    multiply_square<2, 0, Fresh::left>(a, b);
    meanwhile();
    multiply_square<0, 0, Fresh::left>(a, b);
    meanwhile();
  }
  store_tile<0>(sums.data, sums.bytes());
  store_tile<1>(sums.data + 16, sums.bytes());
  store_tile<2>(sums.below(), sums.bytes());
  store_tile<3>(sums.below() + 16, sums.bytes());
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
