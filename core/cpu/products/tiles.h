#pragma once
#include "triax/core/cpu/products/gemm.h"

// Operands of bf16 in the order that AMX tiles want (Intel, "Architecture instruction set
// extensions programming reference", chapter 3), and dot products of pairs take: a tile holds 16
// rows of 64 bytes. To 16 x 16 sums in f32 it adds what 16 rows of a, 32 deep, and 16 columns of b
// give; of b it wants neighbours in depth side by side. Only for files compiled for AVX-512 with
// bf16.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// The rows and columns of the squares that products are made of; depth goes in steps of as many.
constexpr int side = 32;
constexpr int tile_elements = 16 * side;
constexpr int square = side * side;

/// Operands of a square, strips packed as [step][two tiles]; rows of a may stand in memory instead.
struct Strips {
  const BFloat16 *a, *b;
  int64_t steps;
  int64_t a_row = side, a_step = square;  ///< elements from one row, one step of a to the next
};
/// A square of f32, rows `stride` apart.
struct SumSquare {
  float* data;
  int64_t stride;
  int64_t bytes() const { return stride * int64_t(sizeof(float)); }
  float* below() const { return data + 16 * stride; }
};

/// Loads 32 elements of bf16; those past `count` are zero.
TRIAX_HD __m512i load_row(const BFloat16* from, int64_t count) {
  return _mm512_maskz_loadu_epi16(count < side ? (1u << (count > 0 ? count : 0)) - 1 : ~0u, from);
}
TRIAX_HD void store_row(BFloat16* to, __m512i row, int64_t count) {
  _mm512_mask_storeu_epi16(to, count < side ? (1u << (count > 0 ? count : 0)) - 1 : ~0u, row);
}
/// Rounds 32 numbers to nearest even.
TRIAX_HD __m512i round_row(const float* from) {
  return __m512i(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from)));
}
/// Interleaves, in each quarter of a register, elements of the lower (upper) half of that quarter
/// of a and b. As intrinsics these make gcc 12 warn of what it leaves undefined itself.
template <class T, bool upper> struct Unpack {
  typedef T V __attribute__((vector_size(64)));
  static constexpr int n = 64 / int(sizeof(T)), quarter = n / 4;
  static constexpr int from(int l) {
    return l / quarter * quarter + (upper ? quarter / 2 : 0) + l % quarter / 2 + (l % 2 ? n : 0);
  }
  template <int... l> TRIAX_HD static __m512i of(__m512i a, __m512i b, Indices<l...>) {
    return __m512i(__builtin_shufflevector(V(a), V(b), from(l)...));
  }
};
template <class T> TRIAX_HD __m512i unpack_lower(__m512i a, __m512i b) {
  return Unpack<T, false>::of(a, b, typename Count<64 / int(sizeof(T))>::type{});
}
template <class T> TRIAX_HD __m512i unpack_upper(__m512i a, __m512i b) {
  return Unpack<T, true>::of(a, b, typename Count<64 / int(sizeof(T))>::type{});
}

/// Interleaves two rows: columns [0, 16) go to `left`, [16, 32) to `right`.
TRIAX_HD void interleave(__m512i first, __m512i second, __m512i& left, __m512i& right) {
  first = __m512i(__builtin_shufflevector(first, first, 0, 4, 1, 5, 2, 6, 3, 7));
  second = __m512i(__builtin_shufflevector(second, second, 0, 4, 1, 5, 2, 6, 3, 7));
  left = unpack_lower<uint16_t>(first, second);
  right = unpack_upper<uint16_t>(first, second);
}

/// The operand of a product: rows of a are [row][depth] in a tile, columns of b [depth / 2][column]
/// [2].
enum class Part { left, right };

/// Returns the elements of an operand in strips of 32 rows (or columns), zeros where it ends.
constexpr int64_t strips_size(int64_t count, int64_t depth) {
  return round_up(count, side) * round_up(depth, side);
}

/// A square of memory: 32 rows of 32, `stride` elements apart.
struct Square {
  const BFloat16* data;
  int64_t stride;
  /// Returns elements [8 part, 8 part + 8) of rows i, i + gap, .., i + 3 gap, one row in each lane.
  TRIAX_HD __m512i lanes_of(int64_t i, int64_t gap, int64_t part) const {
    const BFloat16* from = data + i * stride + 8 * part;
    __m512i v{};
#pragma GCC unroll 4
    for (int lane = 0; lane < 4; ++lane, from += gap * stride) {
      __m128i piece = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      v = lane == 0 ? _mm512_zextsi128_si512(piece)
                    : _mm512_mask_broadcast_i32x4(v, __mmask16(15 << 4 * lane), piece);
    }
    return v;
  }
};

/// Copies rows along depth, as a left operand has them.
TRIAX_HD void copy_rows(Square x, BFloat16* to) {
  for (int i = 0; i < side; ++i)
    store_row(to + i * side, load_row(x.data + i * x.stride, side), side);
}
/// Turns rows along depth into pairs of depth by row: squares of 4 x 4 pairs turn in their lanes.
TRIAX_HD void turn_pairs(Square x, BFloat16* to) {
  for (int half = 0; half < 2; ++half, to += tile_elements, x.data += 16 * x.stride)
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      __m512i a = x.lanes_of(0, 4, part), b = x.lanes_of(1, 4, part), c = x.lanes_of(2, 4, part),
              d = x.lanes_of(3, 4, part);
      __m512i ab = unpack_lower<uint32_t>(a, b), cd = unpack_lower<uint32_t>(c, d);
      __m512i ab2 = unpack_upper<uint32_t>(a, b), cd2 = unpack_upper<uint32_t>(c, d);
      BFloat16* row = to + 4 * part * side;
      store_row(row, unpack_lower<uint64_t>(ab, cd), side);
      store_row(row + side, unpack_upper<uint64_t>(ab, cd), side);
      store_row(row + 2 * side, unpack_lower<uint64_t>(ab2, cd2), side);
      store_row(row + 3 * side, unpack_upper<uint64_t>(ab2, cd2), side);
    }
}
/// Turns a row for each depth into pairs of depth.
TRIAX_HD void pair_rows(Square x, BFloat16* to) {
#pragma GCC unroll 4
  for (int i = 0; i < side; i += 2) {
    __m512i left, right;
    interleave(load_row(x.data + i * x.stride, side), load_row(x.data + (i + 1) * x.stride, side),
               left, right);
    store_row(to + i * 16, left, side);
    store_row(to + i * 16 + tile_elements, right, side);
  }
}
/// Turns a row for each depth into rows along depth: squares of 8 x 8 are turned in their lanes.
TRIAX_HD void turn_rows(Square x, BFloat16* to) {
  for (int part = 0; part < 4; ++part, to += 8 * side) {
    __m512i a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] = x.lanes_of(i, 8, part);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {  // pairs of depth
      b[i] = unpack_lower<uint16_t>(a[i], a[i + 1]);
      b[i + 1] = unpack_upper<uint16_t>(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {  // fours: rows 0 1, 2 3, 4 5, 6 7
      a[i] = unpack_lower<uint32_t>(b[i], b[i + 2]);
      a[i + 1] = unpack_upper<uint32_t>(b[i], b[i + 2]);
      a[i + 2] = unpack_lower<uint32_t>(b[i + 1], b[i + 3]);
      a[i + 3] = unpack_upper<uint32_t>(b[i + 1], b[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      store_row(to + 2 * i * side, unpack_lower<uint64_t>(a[i], a[i + 4]), side);
      store_row(to + (2 * i + 1) * side, unpack_upper<uint64_t>(a[i], a[i + 4]), side);
    }
  }
}

/// Packs one step of one strip, two tiles: at most 32 rows (or columns), at most 32 deep.
template <Part part>
TRIAX_HD void pack_step(Operand<BFloat16> x, int64_t count, int64_t depth, BFloat16* to) {
  bool along_depth = x.inner == 1;
  int64_t rows = along_depth ? count : depth, cols = along_depth ? depth : count;
  Square from{x.data, along_depth ? x.outer : x.inner};
  alignas(64) BFloat16 padded[square];
  if (rows < side || cols < side) {
    for (int64_t i = 0; i < side; ++i)
      store_row(padded + i * side,
                load_row(from.data + (i < rows ? i : 0) * from.stride, i < rows ? cols : 0), side);
    from = {padded, side};
  }
  if constexpr (part == Part::left) {
    if (along_depth) copy_rows(from, to);
    else turn_rows(from, to);
  } else {
    if (along_depth) turn_pairs(from, to);
    else pair_rows(from, to);
  }
}

/// Packs `count` rows of a or columns of b: [strip][step][two tiles]. A unit stride either way.
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
