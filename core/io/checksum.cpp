#include "triax/core/io/checksum.h"

#include <array>
#include <cstring>

namespace triax {

namespace {

constexpr std::array<uint32_t, 256> make_table() {
  constexpr uint32_t reversed_polynomial = 0x82f63b78u;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? reversed_polynomial : 0u);
    table[byte] = crc;
  }
  return table;
}
constexpr auto table = make_table();

#ifdef __x86_64__
// Processors have an instruction for this polynomial. Tables for eight bytes at once reach a
// quarter of its speed.
__attribute__((target("sse4.2"))) uint32_t of_words(const unsigned char* p, size_t words,
                                                    uint64_t crc) {
  for (; words > 0; --words, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  return uint32_t(crc);
}
#endif

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  auto* p = static_cast<const unsigned char*>(data);
  crc = ~crc;
#ifdef __x86_64__
  if (__builtin_cpu_supports("sse4.2")) {
    crc = of_words(p, bytes / 8, crc);
    p += bytes / 8 * 8;
    bytes %= 8;
  }
#endif
  for (; bytes > 0; --bytes, ++p) crc = (crc >> 8) ^ table[(crc ^ *p) & 0xffu];
  return ~crc;
}

}  // namespace triax
