#include "core/checksum.h"

#include <array>
#include <cstring>

namespace triax {

namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b] is the checksum of byte b followed by k zero bytes ("slicing by 8", Kounavis and
// Berry 2005): eight independent look-ups replace eight dependent ones.
constexpr Tables make_tables() {
  constexpr uint32_t reversed_polynomial = 0x82f63b78u;
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? reversed_polynomial : 0u);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xffu];
    }
  return tables;
}
constexpr Tables tables = make_tables();

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as little-endian");
  auto* p = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= tables[7 - k][(word >> (8 * k)) & 0xffu];
  }
  for (; bytes > 0; --bytes, ++p) crc = (crc >> 8) ^ tables[0][(crc ^ *p) & 0xffu];
  return ~crc;
}

}  // namespace triax
