#pragma once
#include <cstdint>

/// Marks what runs on host and device. Always inlined: a file built for one instruction level must
/// not leave a copy behind that the linker could choose for a machine without it.
#if defined(__CUDACC__)
#define TRIAX_HD __host__ __device__ __forceinline__
#else
#define TRIAX_HD inline __attribute__((always_inline))
#endif

namespace triax {

template <class To, class From> TRIAX_HD To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

/// bfloat16: the upper half of an f32, rounded to nearest even. NaN becomes 0x7fc0.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  TRIAX_HD explicit BFloat16(float x) {
    uint32_t u = bit_cast<uint32_t>(x);
    uint32_t rounded = u + (0x7fffu + ((u >> 16) & 1u));
    bits = uint16_t((x != x ? 0x7fc00000u : rounded) >> 16);
  }
  TRIAX_HD explicit operator float() const { return bit_cast<float>(uint32_t(bits) << 16); }
};

/// IEEE 754 binary16, rounded to nearest even. Without branches, so that loops over it vectorise.
struct Half {
  uint16_t bits;

  Half() = default;
  TRIAX_HD explicit Half(float x) {
    uint32_t u = bit_cast<uint32_t>(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    // Normal: drop 13 bits, rounding to even, and move the exponent's bias from 127 to 15.
    uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
    // Subnormal: adding 0.5 leaves the result in the low bits, rounded by the adder itself.
    uint32_t small = bit_cast<uint32_t>(bit_cast<float>(a) + 0.5f) - 0x3f000000u;
    uint32_t special = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t r = a < 0x38800000u ? small : normal;
    bits = uint16_t(sign | (a >= 0x477ff000u ? special : r));
  }
  TRIAX_HD explicit operator float() const {
    uint32_t sign = uint32_t(bits & 0x8000u) << 16, a = bits & 0x7fffu;
    // The exponent moves by an exact product with 2^112, which also makes subnormals right.
    float finite = bit_cast<float>(a << 13) * 0x1p112f;
    uint32_t special = (a << 13) | 0x7f800000u;
    uint32_t r = a >= 0x7c00u ? special : bit_cast<uint32_t>(finite);
    return bit_cast<float>(sign | r);
  }
};

}  // namespace triax
