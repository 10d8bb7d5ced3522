#include "examples/minigpt/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/files.h"
#include "examples/minigpt/toml.h"
#include "examples/minigpt/utf8.h"

namespace triax::minigpt {

namespace {

constexpr uint64_t largest_file = 1 << 20;

bool is_text(const Flag& flag) { return std::holds_alternative<std::string*>(flag.field); }
bool is_whole(const Flag& flag) { return std::holds_alternative<int64_t*>(flag.field); }

std::string expected(const Flag& flag) {
  if (!flag.choices.empty()) return fmt::format("one of: {}", fmt::join(flag.choices, ", "));
  if (is_text(flag)) return "a text in UTF-8";
  if (is_switch(flag)) return "true or false";
  const char* kind = is_whole(flag) ? "a whole number" : "a number";
  auto bound = [](double x) { return std::abs(x) < 1e15 ? fmt::format("{:.15g}", x) : "2^63 - 1"; };
  const Range& r = flag.range;
  if (std::isinf(r.max)) return fmt::format("{}, {} or more", kind, bound(r.min));
  return fmt::format("{} in [{}, {}{}", kind, bound(r.min), bound(r.max), r.open_max ? ")" : "]");
}

template <class T> bool read_number(const std::string& text, T& value) {
  T read{};
  const char* last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, read);
  if (error != std::errc() || end != last) return false;
  value = read;
  return true;
}

bool is_utf8(const std::string& text) try {
  for (size_t at = 0; at < text.size();) next_code_point(text, at, "");
  return text.find('\0') == text.npos;
} catch (const Error&) {
  return false;
}

bool allowed(const Flag& flag) {
  if (auto text = std::get_if<std::string*>(&flag.field)) {
    const auto& choices = flag.choices;
    return is_utf8(**text) &&
           (choices.empty() || std::count(choices.begin(), choices.end(), **text));
  }
  const Range& r = flag.range;
  if (auto whole = std::get_if<int64_t*>(&flag.field)) {
    return static_cast<double>(**whole) >= r.min && static_cast<double>(**whole) <= r.max;
  }
  if (is_switch(flag)) return true;
  double x = *std::get<double*>(flag.field);
  return std::isfinite(x) && x >= r.min && (r.open_max ? x < r.max : x <= r.max);
}

std::string value_text(const Flag& flag) {
  return std::visit([](auto* field) { return fmt::format("{}", *field); }, flag.field);
}

// The distance of Levenshtein (1966), row by row.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      size_t substitute = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

void assign(const Flag& flag, const std::string& text, const Origin& origin) {
  auto set = [&]<class T>(T* field) {
    if constexpr (std::is_same_v<T, std::string>) return *field = text, true;
    else if constexpr (std::is_same_v<T, bool>)
      return *field = text == "true", *field || text == "false";
    else return read_number(text, *field);
  };
  check_input(std::visit(set, flag.field) && allowed(flag), origin.code, "{}: `{}`; expected {}",
              origin.where, printable(text), expected(flag));
}

void check_value(const Flag& flag, const Origin& origin) {
  check_input(allowed(flag), origin.code, "{}: `{}`; expected {}", origin.where,
              printable(value_text(flag)), expected(flag));
}

void read_config(const Flags& flags, const std::string& path) {
  for (const TomlEntry& entry : read_toml(disk().read(path, largest_file), path)) {
    auto flag = std::find_if(flags.begin(), flags.end(),
                             [&](const Flag& f) { return f.key && f.name == entry.key; });
    if (flag == flags.end()) {
      std::vector<std::string> keys;
      for (const Flag& f : flags) {
        if (f.key) keys.push_back(f.name);
      }
      fail(Exit::config, "{}:{}: unknown key `{}`; the nearest is `{}`", path, entry.line,
           printable(entry.key), nearest(entry.key, keys));
    }
    bool text = entry.kind == TomlEntry::Kind::text;
    bool boolean = entry.kind == TomlEntry::Kind::boolean;
    const char* what = text ? "a text in quotes" : boolean ? "true or false" : "a number";
    check_input(text == is_text(*flag) && boolean == is_switch(*flag), Exit::config,
                "{}:{}: {} is {}; expected {}", path, entry.line, entry.key, what, expected(*flag));
    assign(*flag, entry.value,
           {Exit::config, fmt::format("{}:{}: {}", path, entry.line, entry.key)});
  }
}

std::string to_toml(const Flags& flags) {
  std::string toml, group;
  for (const Flag& flag : flags) {
    if (!flag.key) continue;
    if (flag.group != group) toml += fmt::format("{}# {}\n", toml.empty() ? "" : "\n", flag.group);
    group = flag.group;
    toml += fmt::format("{} = {}\n", flag.name, literal(flag));
  }
  return toml;
}

std::string literal(const Flag& flag) {
  std::string text = value_text(flag);  // {} of a double: the shortest digits that read back
  if (is_text(flag)) return toml_string(text);
  bool whole = text.find_first_of(".e") == text.npos, real = !is_whole(flag) && !is_switch(flag);
  return real && whole ? text + ".0" : text;
}

std::string default_of(const Flag& flag) {
  return flag.shown.empty() ? value_text(flag) : flag.shown;
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  return *std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
}

}  // namespace triax::minigpt
