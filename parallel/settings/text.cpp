#include "parallel/settings/text.h"

#include "core/check.h"

namespace triax::parallel {

bool is_plain_text(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t at = 0; at < text.size();) {
    unsigned lead = byte(at);
    size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (lead == 0 || lead > 0xF4 || length == 0 || at + length > text.size()) return false;
    for (size_t i = at + 1; i < at + length; ++i)
      if ((byte(i) & 0xC0) != 0x80) return false;
    // The second byte tells overlong forms, surrogates and values past U+10FFFF from the others.
    unsigned second = length > 1 ? byte(at + 1) : 0;
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
      return false;
    at += length;
  }
  return true;
}

std::string toml_string(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += {'\\', c};
    else if (c == '\n') quoted += "\\n";
    else if ((c >= 0 && c < 0x20) || c == 0x7F) quoted += fmt::format("\\u{:04x}", int(c));
    else quoted.push_back(c);
  }
  return quoted + '"';
}

std::string toml_real(double number) {
  std::string digits = fmt::format("{}", number);
  bool integral = digits.find_first_of(".en") == digits.npos;  // 3, but not 0.3, 1e+30 or inf
  return integral ? digits + ".0" : digits;
}

}  // namespace triax::parallel
