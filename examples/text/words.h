#pragma once
#include <cstdint>
#include <string_view>

#include "examples/text/utf8.h"

namespace triax::text {

/// Categories L and N, the property White_Space, and the rest, of Unicode 16.
enum class CharacterClass : uint8_t { other, letter, number, space };
CharacterClass class_of(char32_t c);

/// End of the word that begins at byte `at`. Words are the matches of GPT-2's pattern (Radford et
/// al., 2019), which byte-level BPE does not merge across:
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// Throws Error 65 for bytes that are not UTF-8.
size_t word_end(std::string_view text, size_t at, const Source& source);

/// The last place before byte `end` of a text where a word ends whatever follows; 0 if there is
/// none.
size_t last_word_end(std::string_view text, size_t end, const Source& source);

/// Where the last whole character of a text ends that may be cut off in the middle of one.
size_t last_character_end(std::string_view text);

}  // namespace triax::text
