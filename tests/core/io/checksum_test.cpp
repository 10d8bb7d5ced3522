#include "triax/core/io/checksum.h"

#include <gtest/gtest.h>

#include <string>

namespace triax {
namespace {

TEST(Checksum, PublishedValues) {  // RFC 3720, appendix B.4
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  std::string bytes(32, '\0');
  EXPECT_EQ(crc32c(bytes.data(), 32), 0x8a9136aau);
  bytes.assign(32, '\xff');
  EXPECT_EQ(crc32c(bytes.data(), 32), 0x62a8ab43u);
  for (size_t i = 0; i < 32; ++i) bytes[i] = char(i);
  EXPECT_EQ(crc32c(bytes.data(), 32), 0x46dd794eu);
  EXPECT_EQ(crc32c("", 0), 0u);
}

TEST(Checksum, ContinuesOverAnyCut) {
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += char(i * 37);
  uint32_t whole = crc32c(bytes.data(), bytes.size());
  for (size_t cut = 0; cut <= bytes.size(); ++cut)
    EXPECT_EQ(crc32c(&bytes[cut], bytes.size() - cut, crc32c(bytes.data(), cut)), whole);
}

}  // namespace
}  // namespace triax
