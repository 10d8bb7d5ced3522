#pragma once
#include <cstdint>
#include <string_view>

#include "examples/text/utf8.h"

namespace triax::text {

/// Categories L and N, the property White_Space, and the rest, of Unicode 16.
enum class CharacterClass : uint8_t { other, letter, number, space };

/// How a text is cut into words, which byte-level BPE does not merge across: the matches of a
/// pattern. That of GPT-2 (Radford et al., 2019) is
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
enum class Words : uint8_t { gpt2, llama3 };
/// That of Llama 3 (Dubey et al., "The Llama 3 Herd of Models", 2024), as its tokenizer.json has
/// it.
inline constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// End of the word that begins at byte `at`. Throws Error 65 for bytes that are not UTF-8.
size_t word_end(std::string_view text, size_t at, const Source& source, Words words = Words::gpt2);

/// The last place before byte `end` of a text where a word ends whatever follows; 0 if there is
/// none.
size_t last_word_end(std::string_view text, size_t end, const Source& source, Words words);

/// Where the last whole character of a text ends that may be cut off in the middle of one.
size_t last_character_end(std::string_view text);

}  // namespace triax::text
