#pragma once
#include <string>
#include <string_view>

namespace triax::text {

/// Returns the PCRE2 expression that matches what `pattern` matches in Oniguruma, the library that
/// `tokenizers` uses, in Unicode and with Ruby's syntax. Throws Error 65 for what the two libraries
/// read in different ways, and for what depends on the text before a match: a text could not be cut
/// into words piece by piece.
std::string to_pcre2(std::string_view pattern);

}  // namespace triax::text
