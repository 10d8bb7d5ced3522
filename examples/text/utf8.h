#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace triax::text {

/// The code point that begins at byte `at`, which moves behind it. Strict (The Unicode Standard,
/// table 3-7): overlong forms, surrogates and values past U+10FFFF are refused. Throws Error 65
/// with `name`, byte offset and byte value.
char32_t next_code_point(std::string_view text, size_t& at, std::string_view name);

/// UTF-8 of a code point, appended.
void append_utf8(std::string& text, char32_t code_point);

/// A code point for a message: `'a' U+0061`, `'\n' U+000A`.
std::string describe(char32_t code_point);

}  // namespace triax::text
