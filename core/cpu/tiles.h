#pragma once
#include "core/cpu/gemm.h"

// Products of bf16 in AMX tiles (Intel, "Architecture instruction set extensions programming
// reference", chapter 3): a tile holds 16 rows of 64 bytes. tdpbf16ps adds to 16 x 16 sums in f32
// what 16 rows of a, 32 deep, and 16 columns of b give; of b it wants neighbours in depth side by
// side. Only for files compiled for AVX-512 with bf16, and run where the level `amx` is there.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// Products are made of squares of this many rows and columns; depth goes in steps of as many.
constexpr int side = 32;
constexpr int tile_elements = 16 * side;
constexpr int square = side * side;

/// This thread's tiles are set up while it lives. The numbers in them do not outlive it.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes_of_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  ~Tiles() { asm volatile("tilerelease" : : : "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

template <int t> TRIAX_HD void load_tile(const void* from, int64_t stride_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride_bytes), "i"(t) : "memory");
}
template <int t> TRIAX_HD void store_tile(void* to, int64_t stride_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride_bytes), "i"(t) : "memory");
}
template <int t> TRIAX_HD void zero_tile() { asm volatile("tilezero %%tmm%c0" : : "i"(t)); }
template <int c, int a, int b> TRIAX_HD void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2" : : "i"(b), "i"(a), "i"(c));
}

/// c [32, 32], rows `stride` apart, = or += a b over `steps` of depth: strips of packed operands.
TRIAX_HD void multiply_strips(const BFloat16* a, const BFloat16* b, int64_t steps, float* c,
                              int64_t stride, Write write) {
  float* below = c + 16 * stride;
  int64_t bytes = stride * int64_t(sizeof(float));
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
  for (int64_t k = 0; k < steps; ++k, a += square, b += square) {
    load_tile<4>(a, 64);
    load_tile<6>(b, 64);
    multiply_tiles<0, 4, 6>();
    load_tile<7>(b + tile_elements, 64);
    multiply_tiles<1, 4, 7>();
    load_tile<5>(a + tile_elements, 64);
    multiply_tiles<2, 5, 6>();
    multiply_tiles<3, 5, 7>();
  }
  store_tile<0>(c, bytes);
  store_tile<1>(c + 16, bytes);
  store_tile<2>(below, bytes);
  store_tile<3>(below + 16, bytes);
}

/// Sixteen registers' worth of a tile: rows of 16 pairs.
using Pairs = Vector<float>;

/// 32 elements of bf16; those past `count` zero.
TRIAX_HD __m512i load_row(const BFloat16* from, int64_t count) {
  return _mm512_maskz_loadu_epi16(count < side ? (1u << (count > 0 ? count : 0)) - 1 : ~0u, from);
}
TRIAX_HD void store_row(BFloat16* to, __m512i row, int64_t count) {
  _mm512_mask_storeu_epi16(to, count < side ? (1u << (count > 0 ? count : 0)) - 1 : ~0u, row);
}
/// 32 numbers rounded to nearest even.
TRIAX_HD __m512i round_row(const float* from) {
  return __m512i(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from)));
}
/// Elements of two rows in turn: columns [0, 16) to `left`, [16, 32) to `right`.
TRIAX_HD void interleave(__m512i first, __m512i second, __m512i& left, __m512i& right) {
  alignas(64) static constexpr uint16_t order[] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,
                                                   37, 6, 38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                   11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  __m512i at = _mm512_load_si512(order);
  left = _mm512_permutex2var_epi16(first, at, second);
  right = _mm512_permutex2var_epi16(first, _mm512_add_epi16(at, _mm512_set1_epi16(16)), second);
}

/// Which operand of a product: rows of a are [row][depth] in a tile, columns of b [depth / 2][column]
/// [2].
enum class Part { left, right };

/// Elements of an operand packed into strips of 32 rows (or columns), zeros where it ends.
constexpr int64_t strips_size(int64_t count, int64_t depth) {
  return round_up(count, side) * round_up(depth, side);
}

/// One step of one strip, two tiles: at most 32 rows (or columns), at most 32 deep.
template <Part part> void pack_step(Operand<BFloat16> x, int64_t count, int64_t depth, void* to) {
  auto* pairs = static_cast<float*>(to);
  bool along_depth = x.inner == 1;
  for (int half = 0; half < 2; ++half, pairs += 16 * 16) {
    Pairs rows[16];
    if (along_depth) {  // [row][pair]
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        int64_t at = 16 * half + i;
        rows[i] = at < count ? Pairs(load_row(x.data + at * x.outer, depth)) : Pairs{};
      }
    } else {  // [pair][row]
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        __m512i even{}, odd{}, left, right;
        if (2 * i < depth) even = load_row(x.data + 2 * i * x.inner, count);
        if (2 * i + 1 < depth) odd = load_row(x.data + (2 * i + 1) * x.inner, count);
        interleave(even, odd, left, right);
        rows[i] = Pairs(half ? right : left);
      }
    }
    if (along_depth == (part == Part::right)) transpose<float>(rows);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) store<float>(pairs + 16 * i, rows[i]);
  }
}

/// Pack `count` rows of a or columns of b: [strip][step][two tiles]. A unit stride either way.
template <Part part>
void pack_strips(Operand<BFloat16> x, int64_t count, int64_t depth, BFloat16* to) {
  int64_t steps = (depth + side - 1) / side;
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t i = 0; i < count; i += side)
      pack_step<part>(x.at(i, step * side), fn::min<int64_t>(side, count - i),
                      fn::min<int64_t>(side, depth - step * side),
                      to + i * steps * side + step * square);
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
