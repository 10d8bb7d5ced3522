#include <fmt/core.h>

#include <charconv>

#include "parallel/settings/setting.h"

namespace triax::parallel {

std::string with_quotes(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += {'\\', c};
    else if (c == '\n') quoted += "\\n";
    else if ((c >= 0 && c < 0x20) || c == 0x7F) quoted += fmt::format("\\u{:04x}", int(c));
    else quoted.push_back(c);
  }
  return quoted + '"';
}

std::string without_quotes(const std::string& literal) {
  bool quoted = literal.size() >= 2 && literal.front() == '"' && literal.back() == '"';
  if (!quoted) return literal;
  std::string text;
  for (size_t at = 1; at + 1 < literal.size(); ++at) {
    char c = literal[at];
    if (c == '\\' && at + 2 < literal.size()) {
      c = literal[++at];
      if (c == 'n') c = '\n';
      unsigned code = 0;
      const char* digits = literal.data() + at + 1;
      if (c == 'u' && at + 5 < literal.size() &&
          std::from_chars(digits, digits + 4, code, 16).ptr == digits + 4 && code < 0x80)
        c = char(code), at += 4;
    }
    text.push_back(c);
  }
  return text;
}

}  // namespace triax::parallel
