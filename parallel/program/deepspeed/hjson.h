#pragma once
#include <string>
#include <string_view>

namespace triax::parallel {

/// Returns the JSON of a text in Hjson (https://hjson.github.io), which DeepSpeed reads with the
/// Python package of that name: JSON with comments, with commas left out or one too many, with
/// strings without quotes up to the end of their line, and without the outermost braces. Values
/// stay on their lines. Untrusted. Throws Error 65 with source and line; a key that is given twice
/// is not noticed.
std::string json_of_hjson(std::string_view text, const std::string& source);

}  // namespace triax::parallel
