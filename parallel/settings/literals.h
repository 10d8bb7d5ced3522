#pragma once
#include <string>

namespace triax::parallel {

/// A literal of a configuration as a command line has it: without the quotes of a string.
inline std::string without_quotes(const std::string& literal) {
  bool quoted = literal.size() >= 2 && literal.front() == '"' && literal.back() == '"';
  return quoted ? literal.substr(1, literal.size() - 2) : literal;
}

}  // namespace triax::parallel
