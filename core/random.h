#pragma once
#include <cstdint>
#include <string_view>

#include "triax/core/numbers/half.h"

namespace triax::random {

/// Four random words.
struct Words {
  uint32_t x, y, z, w;
};

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a pure
/// function of key and counter, so that a value depends on where it stands and on nothing else.
TRIAX_HD Words philox(uint64_t key, uint64_t row, uint64_t column) {
  Words c{uint32_t(row), uint32_t(row >> 32), uint32_t(column), uint32_t(column >> 32)};
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53u} * c.x, b = uint64_t{0xCD9E8D57u} * c.z;
    c = {uint32_t(b >> 32) ^ c.y ^ k0, uint32_t(b), uint32_t(a >> 32) ^ c.w ^ k1, uint32_t(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// Returns one word per column; four neighbouring columns share one Philox call.
TRIAX_HD uint32_t word(uint64_t key, uint64_t row, uint64_t column) {
  Words r = philox(key, row, column / 4);
  uint32_t low = column & 1 ? r.y : r.x, high = column & 1 ? r.w : r.z;
  return column & 2 ? high : low;
}

/// Returns a word as a number in (0, 1): an odd multiple of 2^-24, so that no rounding reaches 1.
TRIAX_HD float unit(uint32_t word) { return (float(int32_t(word >> 9)) + 0.5f) * 0x1p-23f; }
TRIAX_HD float uniform(uint64_t key, uint64_t row, uint64_t column) {
  return unit(word(key, row, column));
}

/// The elements that a dropout keeps, as a function of their place in the whole training run, so
/// that it is the same on every mesh and needs no state when an activation is recomputed.
/// `row`: serial number, since the start of training, of the token in the tensor's row 0;
/// `column`: feature of column 0 (in attention: head * time + key). `p` in [0, 1); 0 keeps all.
struct Mask {
  float p = 0;
  uint64_t key = 0;
  int64_t row = 0, column = 0;
  /// Returns 0 or 1 / (1 - p).
  TRIAX_HD float at(int64_t r, int64_t c) const {
    return uniform(key, uint64_t(row + r), uint64_t(column + c)) < p ? 0.f : 1.f / (1.f - p);
  }
};

/// Returns a standard normal number for element `index` (Box and Muller 1958, in f64). Host only.
double normal(uint64_t key, uint64_t index);

/// Returns a key for `name` (FNV-1a, mixed with the seed): the same on every platform.
uint64_t key(uint64_t seed, std::string_view name);

}  // namespace triax::random
