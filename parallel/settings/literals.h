#pragma once
#include <string>
#include <string_view>

namespace triax::parallel {

/// A text as a basic string of TOML, with what needs it escaped.
std::string with_quotes(std::string_view text);
/// A literal of a configuration as a command line has it: what `with_quotes` was given, or, without
/// quotes around it, the literal itself.
std::string without_quotes(const std::string& literal);

}  // namespace triax::parallel
