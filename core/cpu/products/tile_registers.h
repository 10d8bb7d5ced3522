#pragma once
#include "triax/core/cpu/vector.h"

// The tile registers of AMX, 16 rows of 64 bytes each, driven in assembler: gcc 12 declares some of
// the intrinsics wrongly.
namespace triax::host::TRIAX_LEVEL {
namespace {

/// While it lives, this thread's tiles are set up. The numbers in them do not outlive it.
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

}  // namespace
}  // namespace triax::host::TRIAX_LEVEL
