#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace triax::text {

/// Where a text is from, for messages.
struct Source {
  std::string name = "tokenizer";
  uint64_t first = 0;  ///< the text's first byte in it
};

/// The code point that begins at byte `at`, which moves behind it. Strict (The Unicode Standard,
/// table 3-7): overlong forms, surrogates and values past U+10FFFF are refused. Throws Error 65
/// with source, byte offset and byte value.
char32_t next_code_point(std::string_view text, size_t& at, const Source& source);

/// UTF-8 of a code point, appended.
void append_utf8(std::string& text, char32_t code_point);

/// A code point for a message: `'a' U+0061`, `'\n' U+000A`.
std::string describe(char32_t code_point);

/// Where the last whole character of a text ends that may be cut off in the middle of one.
size_t last_character_end(std::string_view text);

/// A text that arrives in pieces, which may end in the middle of a character.
class Utf8Stream {
 public:
  /// The characters that are complete with `bytes`. A byte that is no UTF-8 becomes U+FFFD.
  std::string add(std::string_view bytes);
  /// At the end of the text: U+FFFD for a character that was never completed.
  std::string end();

 private:
  std::string held_;  // how the next character begins
};

}  // namespace triax::text
