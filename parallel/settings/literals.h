#pragma once
#include <string>
#include <string_view>

namespace triax::parallel {

/// Returns a text as a basic string of TOML, with escapes.
std::string with_quotes(std::string_view text);
/// Returns a literal of a configuration as a command line has it: the argument of `with_quotes`,
/// or, without quotes around it, the literal itself.
std::string without_quotes(const std::string& literal);

}  // namespace triax::parallel
