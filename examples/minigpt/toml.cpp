#include "examples/minigpt/toml.h"

#include <algorithm>

#include "core/check.h"
#include "core/files.h"
#include "examples/minigpt/utf8.h"

namespace triax::minigpt {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_key(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}
bool is_control(char c) { return (c >= 0 && c < 0x20 && c != '\t') || c == 0x7F; }

// Reads one line of the file.
class Line {
 public:
  Line(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  bool blank() {
    skip_spaces();
    return at_ == text_.size() || text_[at_] == '#';
  }

  std::string key() {
    size_t start = at_;
    while (at_ < text_.size() && is_key(text_[at_])) ++at_;
    if (start == at_) refuse("expected `key = value`");
    std::string key(text_.substr(start, at_ - start));
    skip_spaces();
    if (!take('=')) refuse("expected `=` after the key `" + key + "`");
    return key;
  }

  void value(TomlEntry& entry) {
    skip_spaces();
    entry.kind = TomlEntry::Kind::text;
    if (take('"')) entry.value = basic_string();
    else if (take('\'')) entry.value = literal_string();
    else if (!boolean(entry)) number(entry);
    if (!blank()) refuse("more text after the value");
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail(Exit::config, "{}: {}; the line is `{}`", where_, why, printable(std::string(text_)));
  }

  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  std::string literal_string() {
    size_t end = text_.find('\'', at_);
    if (end == text_.npos) refuse("a text without closing quote");
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }

  std::string basic_string() {
    std::string value;
    while (!take('"')) {
      if (at_ == text_.size()) refuse("a text without closing quote");
      char c = text_[at_++];
      if (c == '\\') escape(value);
      else value.push_back(c);
    }
    return value;
  }

  void escape(std::string& value) {
    constexpr std::string_view names = "btnfr\"\\", meanings = "\b\t\n\f\r\"\\";
    char c = at_ < text_.size() ? text_[at_++] : '\0';
    if (size_t i = names.find(c); i != names.npos) value.push_back(meanings[i]);
    else if (c == 'u' || c == 'U') append_utf8(value, code_point(c == 'u' ? 4 : 8));
    else refuse("an unknown escape in a text; a backslash is written twice");
  }

  char32_t code_point(size_t digits) {
    constexpr std::string_view hex = "0123456789abcdef";
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      size_t digit =
          at_ < text_.size() ? hex.find(static_cast<char>(text_[at_++] | 0x20)) : hex.npos;
      if (digit == hex.npos || value > 0x10FFFF) refuse("an escape that is no character");
      value = value << 4 | static_cast<char32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      refuse("an escape that is no character");
    }
    return value;
  }

  bool boolean(TomlEntry& entry) {
    for (const char* word : {"true", "false"})
      if (text_.substr(at_).starts_with(word)) {
        entry.kind = TomlEntry::Kind::boolean;
        entry.value = word;
        at_ += entry.value.size();
        return true;
      }
    return false;
  }

  // [+-] digits [. digits] [e [+-] digits], underscores between digits.
  void number(TomlEntry& entry) {
    entry.kind = TomlEntry::Kind::integer;
    if (take('-')) entry.value = "-";
    else take('+');
    size_t start = entry.value.size();
    digits(entry.value);
    if (entry.value[start] == '0' && entry.value.size() > start + 1)
      refuse("a number with leading 0");
    if (take('.')) {
      entry.kind = TomlEntry::Kind::real;
      entry.value.push_back('.');
      digits(entry.value);
    }
    if (take('e') || take('E')) {
      entry.kind = TomlEntry::Kind::real;
      entry.value.push_back('e');
      if (take('-')) entry.value.push_back('-');
      else take('+');
      digits(entry.value);
    }
  }

  void digits(std::string& value) {
    do {
      size_t start = at_;
      while (at_ < text_.size() && is_digit(text_[at_])) value.push_back(text_[at_++]);
      if (start == at_) refuse("expected a value: a number, true, false, or a text in quotes");
    } while (take('_'));
  }

  std::string_view text_;
  std::string where_;
  size_t at_ = 0;
};

void check_characters(std::string_view line, const std::string& where) {
  try {
    for (size_t at = 0; at < line.size();) next_code_point(line, at, where);
  } catch (const Error& e) {
    throw Error(Exit::config, e.what(), e.place());
  }
  check_input(std::none_of(line.begin(), line.end(), is_control), Exit::config,
              "{}: a control character", where);
}

}  // namespace

std::vector<TomlEntry> read_toml(std::string_view text, const std::string& name) {
  std::vector<TomlEntry> entries;
  for (int number = 1; !text.empty(); ++number) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (rest.ends_with('\r')) rest.remove_suffix(1);
    std::string where = fmt::format("{}:{}", name, number);
    check_characters(rest, where);
    Line line(rest, where);
    if (line.blank()) continue;
    TomlEntry entry{.key = line.key(), .line = number};
    line.value(entry);
    for (const TomlEntry& e : entries) {
      check_input(e.key != entry.key, Exit::config, "{}: `{}` was given in line {} already", where,
                  entry.key, e.line);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string toml_string(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += {'\\', c};
    else if (c == '\n') quoted += "\\n";
    else if (is_control(c)) quoted += fmt::format("\\u{:04x}", int(c));
    else quoted.push_back(c);
  }
  return quoted + '"';
}

}  // namespace triax::minigpt
