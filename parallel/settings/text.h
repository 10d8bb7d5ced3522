#pragma once
#include <string>
#include <string_view>

namespace triax::parallel {

/// Is it UTF-8 (The Unicode Standard, table 3-7: no overlong forms, no surrogates) without NUL?
bool is_plain_text(std::string_view text);

/// UTF-8 text as a TOML basic string, with its quotes.
std::string toml_string(std::string_view text);

/// A number as a TOML float: the shortest digits that read back to the same bits.
std::string toml_real(double number);

}  // namespace triax::parallel
