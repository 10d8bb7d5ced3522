#pragma once
#include "triax/core/cpu/vector.h"
#include "triax/core/numbers/math.h"

// What core/cpu/products/tile_registers.h has, in plain C++: the results have the bits that AMX
// gives (Intel, "Architecture instruction set extensions programming reference", TDPBF16PS).
namespace triax::host::TRIAX_LEVEL {
namespace {

struct Tile16 {
  char rows[16][64];
};
inline thread_local Tile16 registers[8];

class Tiles {
 public:
  Tiles() {}
  ~Tiles() {}
};

template <int t> void load_tile(const void* from, int64_t stride_bytes) {
  for (int i = 0; i < 16; ++i)
    __builtin_memcpy(registers[t].rows[i], static_cast<const char*>(from) + i * stride_bytes, 64);
}
template <int t> void store_tile(void* to, int64_t stride_bytes) {
  for (int i = 0; i < 16; ++i)
    __builtin_memcpy(static_cast<char*>(to) + i * stride_bytes, registers[t].rows[i], 64);
}
template <int t> void zero_tile() { registers[t] = {}; }

/// One element of c += one row of a times one column of b. Even and odd depths are summed apart.
/// Denormals are zeros: the caller has set that up.
template <int c, int a, int b> void multiply_tiles() {
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  auto left = reinterpret_cast<const BFloat16(*)[32]>(registers[a].rows);
  auto right = reinterpret_cast<const BFloat16(*)[32]>(registers[b].rows);
  auto sums = reinterpret_cast<float(*)[16]>(registers[c].rows);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      float even = 0, odd = 0;
      for (int k = 0; k < 16; ++k) {
        even = fn::fma(float(left[i][2 * k]), float(right[k][2 * j]), even);
        odd = fn::fma(float(left[i][2 * k + 1]), float(right[k][2 * j + 1]), odd);
      }
      sums[i][j] += even + odd;
    }
  _mm_setcsr(before);
}

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
