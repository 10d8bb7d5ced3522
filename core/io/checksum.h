#pragma once
#include <cstddef>
#include <cstdint>

namespace triax {

/// Returns the CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `bytes` bytes. Every change of up to
/// 32 consecutive bits changes it. Pass the last result as `crc` to continue over more bytes.
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace triax
