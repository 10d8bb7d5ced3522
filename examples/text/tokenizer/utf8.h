#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace triax::text {

/// The source of a text, for messages.
struct Source {
  std::string name = "tokenizer";
  uint64_t first = 0;  ///< the text's first byte in it
};

/// Returns the code point that begins at byte `at`, and moves `at` behind it. Strict (The Unicode
/// Standard, table 3-7): overlong forms, surrogates and values past U+10FFFF are refused. Throws
/// Error 65 with source, byte offset and byte value.
char32_t next_code_point(std::string_view text, size_t& at, const Source& source);

/// Appends the UTF-8 of a code point.
void append_utf8(std::string& text, char32_t code_point);

/// Returns a code point for a message: `'a' U+0061`, `'\n' U+000A`.
std::string describe(char32_t code_point);

/// Returns the bytes of the character that `lead` begins; 1 for a byte that begins none.
size_t character_size(char lead);

/// Returns where the last whole character of a text ends that may be cut off in the middle of one.
size_t last_character_end(std::string_view text);

/// A text that arrives in pieces, which may end in the middle of a character.
class Utf8Stream {
 public:
  /// Returns the characters that `bytes` complete. A byte that is no UTF-8 becomes U+FFFD.
  std::string add(std::string_view bytes);
  /// Returns, at the end of the text, U+FFFD for a character that was never completed.
  std::string end();

 private:
  std::string held_;  // the beginning of the next character
};

}  // namespace triax::text
