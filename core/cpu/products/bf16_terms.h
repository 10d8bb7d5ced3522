#pragma once
#include "triax/core/cpu/products/products.h"
#include "triax/core/cpu/products/tiles.h"

// Products of f32 in tiles of bf16. Each f32 is the sum of three bf16 terms; of the nine products
// of terms the six largest are computed, the others are below the rounding of f32 (Henry, Tang and
// Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
// computations", 2019, section III). Sums in a tile start at zero in every pass.
namespace triax::host::TRIAX_LEVEL {
namespace {

constexpr int terms = 3;

typedef uint32_t Words __attribute__((vector_size(64)));

TRIAX_HD Words max(const Words& a, const Words& b) { return a > b ? a : b; }
TRIAX_HD Words min(const Words& a, const Words& b) { return a < b ? a : b; }
template <class F> TRIAX_HD uint32_t over_lanes(F f, Words x) {
  x = f(x, __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  x = f(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3));
  x = f(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1));
  return f(x, __builtin_shufflevector(x, x, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0))[0];
}
TRIAX_HD uint32_t largest_of(const Words& x) { return over_lanes(max, x); }
TRIAX_HD uint32_t smallest_of(const Words& x) { return over_lanes(min, x); }
/// Returns the bits without the sign, shifted left by one.
TRIAX_HD Words magnitude(const Vector<float>& x) { return Words(x) << 1; }

/// The range of the exponents that the largest magnitudes of some rows (or columns) have.
struct Exponents {
  static constexpr int zero = -127;  ///< of zeros alone
  int least, most;

  static int of(uint32_t magnitude) {
    return magnitude == 0 ? zero : int(magnitude >> 24) - 127 + (magnitude >> 24 == 0);
  }
  /// True if terms give the product of a row and a column of these exponents as exactly as f32.
  /// Tiles take denormals for zeros, so the smallest terms, 2^-18 of the largest numbers, and their
  /// products must be normal. Near the largest f32 a product of terms could be infinite where the
  /// sum is not. Numbers below 2^-108 beside larger ones lose bits.
  static bool fit(int x, int y) {
    if (x > 126 || y > 126) return false;
    if (x == zero || y == zero) return true;
    return x >= -100 && y >= -100 && x + y >= -100 && x + y <= 116;
  }
  /// True if all rows of a fit all columns of b.
  static bool all_fit(const Exponents& a, const Exponents& b) {
    return fit(a.least, b.least) && fit(a.most, b.most);
  }
};

/// While it lives, denormal results are zero: as remainders they cost hundreds of cycles, and tiles
/// would take them for zeros anyway. Compilers move no access to memory past its begin and its end.
class FlushDenormals {
 public:
  FlushDenormals() {
    _mm_setcsr(before_ | 0x8040);
    asm volatile("" ::: "memory");
  }
  ~FlushDenormals() {
    asm volatile("" ::: "memory");
    _mm_setcsr(before_);
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned before_ = _mm_getcsr();
};

/// Returns x rounded to bf16, in the upper half of each word. x becomes the (exact) remainder.
TRIAX_HD Words take_term(Vector<float>& x) {
  Words term = (Words(x) + 0x8000u) & 0xffff0000u;
  x -= Vector<float>(term);
  return term;
}

/// Writes rows of pairs of a tile for each term, `square` elements apart: (a[0], b[0]), (a[1],
/// b[1]) ... Two terms leave at most seven of 24 bits: the third term is these, unrounded but for
/// denormals, whose lower halves must not reach the partner's term.
TRIAX_HD void split_row(const float* first, const float* second, Words& largest, BFloat16* to) {
  Vector<float> a = load<float>(first), b = load<float>(second);
  largest = max(max(largest, magnitude(a)), magnitude(b));
#pragma GCC unroll 3
  for (int p = 0; p < terms; ++p, to += square) {
    bool rest = p == terms - 1;
    Words pairs = (rest ? Words(a) : take_term(a)) >> 16;
    pairs |= rest ? Words(b) & 0xffff0000u : take_term(b);
    __builtin_memcpy(to, &pairs, sizeof(pairs));
  }
}

/// Transposes 16 x 16 numbers; rows of `to` are `side` apart.
TRIAX_HD void transpose_part(const float* x, int64_t stride, float* to) {
  Vector<float> rows[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) rows[r] = load<float>(x + r * stride);
  transpose<float>(rows);
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) store<float>(to + r * side, rows[r]);
}
/// Transposes 32 x 32 numbers.
TRIAX_HD void transpose_square(const float* x, int64_t stride, float* to) {
  for (int i = 0; i < side; i += 16)
    for (int j = 0; j < side; j += 16)
      transpose_part(x + i * stride + j, stride, to + j * side + i);
}

/// The number of vectors that hold a strip's largest magnitudes: each row has one, whose lanes are
/// depths; each column has a lane.
template <Part part> constexpr int magnitudes = part == Part::left ? side : 2;

/// Returns the exponents of a strip, without those of zeros alone. `least` may be less than it is
/// where none is small.
template <Part part> TRIAX_HD Exponents exponents_of(const Words* largest) {
  constexpr int none_is_small = -50;
  Words low = largest[0], high = low;
  for (int i = 1; i < magnitudes<part>; ++i) {
    low = min(low, largest[i]);
    high = max(high, largest[i]);
  }
  uint32_t least = part == Part::left ? largest_of(low) : smallest_of(low);
  Exponents e{Exponents::of(least), Exponents::of(largest_of(high))};
  if (e.least >= none_is_small) return e;
  e.least = e.most;
  auto see = [&](uint32_t magnitude) {
    if (magnitude > 0) e.least = fn::min(e.least, Exponents::of(magnitude));
  };
  for (int i = 0; i < magnitudes<part>; ++i) {
    if (part == Part::left) see(largest_of(largest[i]));
    else
      for (int lane = 0; lane < 16; ++lane) see(largest[i][lane]);
  }
  return e;
}

/// Packs the terms of one step of one strip, at most 32 rows (or columns), at most 32 deep:
/// [term][two tiles]. Depths l and l + 16 are a pair, in both operands.
template <Part part>
TRIAX_HD void pack_terms(Operand<float> x, int64_t count, int64_t depth, Words* largest,
                         BFloat16* to) {
  alignas(64) float padded[square], turned[square];
  bool along_depth = x.inner == 1;
  const float* from = x.data;
  int64_t stride = along_depth ? x.outer : x.inner;
  if (count < side || depth < side) {
    int64_t rows = along_depth ? count : depth, cols = along_depth ? depth : count;
    for (int64_t i = 0; i < side; ++i)
      for (int64_t j = 0; j < side; ++j)
        padded[i * side + j] = i < rows && j < cols ? from[i * stride + j] : 0;
    from = padded, stride = side;
  }
  if (along_depth != (part == Part::left)) {
    transpose_square(from, stride, turned);
    from = turned, stride = side;
  }
  if constexpr (part == Part::left) {
    for (int i = 0; i < side; ++i, from += stride)
      split_row(from, from + 16, largest[i], to + i * side);
  } else {
    for (int l = 0; l < 16; ++l, from += stride)
      for (int half = 0; half < 2; ++half)
        split_row(from + 16 * half, from + 16 * stride + 16 * half, largest[half],
                  to + half * tile_elements + l * side);
  }
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
