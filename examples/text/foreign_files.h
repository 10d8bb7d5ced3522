#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/io/files.h"

namespace triax::text {

/// The contents of Megatron-LM's index, x.idx, of a file of tokens, x.bin.
struct MegatronIndex {
  int width = 2;  ///< bytes of a token
  int64_t tokens = 0;
};
/// Returns the index of a path *.bin; none if there is no file of that name, or it is no index.
/// Untrusted: throws Error 65 if it is cut off, or has another dtype than int32 and uint16.
std::optional<MegatronIndex> megatron_index(const std::string& path);

/// Throws Error 65 for a file that is not of 16-bit tokens: for an odd size, for a text, and where
/// 16-bit tokens would be a strange sequence, but 32-bit or 64-bit ones would not.
void check_is_u16(const File& file);

/// Returns a notice if a text is JSON Lines, by its beginning; else nothing.
std::string json_lines_notice(const std::string& path, std::string_view beginning);

}  // namespace triax::text
