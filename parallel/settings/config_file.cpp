#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/settings/setting.h"

namespace triax::parallel {

namespace {

constexpr uint64_t largest_file = 1 << 20;

// One `key = value` of a file.
struct Entry {
  unsigned line;  ///< from 1
  std::string key;
  const toml::node* value;
};

std::string line_of(std::string_view text, unsigned line) {
  for (; line > 1; --line) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  text = text.substr(0, text.find('\n'));
  return std::string(text.substr(0, text.find('\r')));
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// Replaces bytes that are not ASCII by `?`: TOML allows both in strings and comments alone.
std::string in_ascii(std::string text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.replace(0, 3, "   ");  // a byte order mark
  std::ranges::replace_if(text, std::not_fn(is_ascii), '?');
  return text;
}

// Parses as ASCII first, since toml++ 3.3 has undefined behaviour at most other letters outside of
// strings and comments.
toml::table parse_file(const std::string& text, const std::string& path) try {
  (void)toml::parse(in_ascii(text));
  return toml::parse(text);
} catch (const toml::parse_error& e) {
  unsigned line = std::max(e.source().begin.line, 1u);
  std::string shown = line_of(text, line), why(e.description());
  size_t column = e.source().begin.column;  // from 1, in bytes as long as it was read as ASCII
  if (column >= 1 && column <= shown.size() && !is_ascii(shown[column - 1]))
    why = fmt::format("byte {:#04x} outside of quotes; expected ASCII",
                      static_cast<unsigned char>(shown[column - 1]));
  fail(Exit::config, "{}:{}: {}; the line is `{}`", path, line, printable(why), printable(shown));
}

// Returns the entries in the order of the file, so that the first mistake is the one reported.
std::vector<Entry> entries_of(const toml::table& table) {
  std::vector<Entry> entries;
  for (auto&& [key, value] : table)
    entries.push_back({key.source().begin.line, std::string(key.str()), &value});
  std::sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.line < b.line; });
  return entries;
}

const Setting& setting_of(const Entry& entry, const Settings& settings, const std::string& path) {
  std::vector<std::string> keys;
  std::vector<Elsewhere> names;
  for (const Setting& s : settings) {
    if (!s.key) continue;
    if (s.name == entry.key) return s;
    keys.push_back(s.name), names.push_back({s.name, s.elsewhere});
  }
  std::string meant = hint(entry.key, names, "`{}`");
  constexpr size_t few = 20;  // a hardware file's, but not a run's
  if (meant.empty())
    meant = keys.size() < few ? "; expected one of: " + join(keys, ", ")
                              : "; keys are the flags that --help lists, without dashes";
  fail(Exit::config, "{}:{}: unknown key `{}`{}", path, entry.line, printable(entry.key), meant);
}

const char* kind_of(const toml::node& value) {
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number()) return "a number";
  return value.is_table() ? "a table" : value.is_array() ? "an array" : "a date or time";
}

// Returns a value as on a command line; texts are read, and refused, by the same code.
std::string text_of(const toml::node& value) {
  if (auto* text = value.as_string()) return text->get();
  if (auto* whole = value.as_integer()) return std::to_string(whole->get());
  if (auto* boolean = value.as_boolean()) return boolean->get() ? "true" : "false";
  return toml_real(value.as_floating_point()->get());
}

// True if a value has the setting's type. A whole number may also name a value: `zero = 1`.
bool fits(const Setting& s, const toml::node& value) {
  if (is_switch(s)) return value.is_boolean();
  if (!is_text(s)) return value.is_number();
  auto* named = std::get_if<Choice>(&s.field);
  return value.is_string() ||
         (named && value.is_integer() && std::ranges::count(named->names, text_of(value)) > 0);
}

}  // namespace

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

std::string to_toml(const Settings& settings) {
  std::string toml, group;
  for (const Setting& s : settings) {
    if (!s.key || !s.saved || is_unset(s)) continue;
    if (s.group != group) toml += fmt::format("{}# {}\n", toml.empty() ? "" : "\n", s.group);
    group = s.group;
    toml += fmt::format("{} = {}\n", s.name, literal(s));
  }
  return toml;
}

std::vector<std::string> read_config(const Settings& settings, const std::string& path,
                                     const Settings& elsewhere) {
  return read_config_text(settings, disk().read(path, largest_file), path, elsewhere);
}

std::vector<std::string> read_config_text(const Settings& settings, const std::string& text,
                                          const std::string& path, const Settings& elsewhere) {
  size_t first = text.find_first_not_of(" \t\r\n");
  bool reads_json = std::ranges::count(settings, "deepspeed", &Setting::name) > 0;
  check_input(first == text.npos || text[first] != '{', Exit::config,
              "{}:{}: this is JSON; expected TOML: lines `key = value`, whose keys are the flags "
              "that --help lists, without dashes{}",
              path, 1 + std::count(text.begin(), text.begin() + std::min(first, text.size()), '\n'),
              reads_json ? "\n  DeepSpeed's JSON is read by --deepspeed FILE." : "");
  toml::table table = parse_file(text, path);
  auto has_key = [](const Settings& all, const std::string& key) {
    return std::ranges::any_of(all, [&](auto& s) { return s.key && s.name == key; });
  };
  std::vector<std::string> keys;
  for (const Entry& entry : entries_of(table)) {
    if (!has_key(settings, entry.key) && has_key(elsewhere, entry.key)) continue;
    std::string where = fmt::format("{}:{}: {}", path, entry.line, printable(entry.key));
    check_input(!entry.value->is_table(), Exit::config,
                "{} is a table; expected lines `key = value` without tables", where);
    const Setting& s = setting_of(entry, settings, path);
    check_input(fits(s, *entry.value), Exit::config, "{} is {}; expected {}", where,
                kind_of(*entry.value), expected(s));
    std::string value = text_of(*entry.value);
    bool kept = s.saved && !s.derived;  // to_toml writes it, empty or not
    check_input(!value.empty() || !is_path(s) || kept, Exit::config,
                "{} is empty; expected {}, or no such line", where, s.value);
    assign(s, value, {Exit::config, where});
    keys.push_back(s.name);
  }
  return keys;
}

}  // namespace triax::parallel
