#include "triax/parallel/settings/setting.h"

#include <cmath>
#include <set>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"

namespace triax::parallel {

namespace {

constexpr auto name_letters = "abcdefghijklmnopqrstuvwxyz0123456789-";
constexpr double int64_limit = 9223372036854775808.0;  // 2^63

bool in_range(double x, const NumberRange& r) {
  return std::isfinite(x) && (r.open_min ? x > r.min : x >= r.min) &&
         (r.open_max ? x < r.max : x <= r.max);
}

/// Returns the least valid number. Below 0 a derived number is only the mark of an unset one.
double least(const Setting& s) { return s.derived ? std::max(s.range.min, 0.) : s.range.min; }

bool allowed(const Setting& s) {
  auto valid = [&]<class T>(const T& field) {
    if constexpr (std::is_same_v<T, Choice>) return field.get() < field.names.size();
    else if constexpr (std::is_same_v<T, bool*>) return true;
    else if constexpr (std::is_same_v<T, std::string*>)
      return is_plain_text(*field) &&
             (s.choices.empty() || std::ranges::count(s.choices, *field) > 0 ||
              (!s.or_file.empty() && field->ends_with(s.or_file)));
    else if constexpr (std::is_same_v<T, uint64_t*>)
      return *field <= uint64_t{INT64_MAX} && in_range(double(*field), s.range);
    else return double(*field) >= least(s) && in_range(double(*field), s.range);
  };
  return is_unset(s) || std::visit(valid, s.field);
}

// False if the text is of another type; does not check whether the value is allowed.
bool read(const Setting& s, const std::string& text) {
  auto set = [&]<class T>(const T& field) {
    if constexpr (std::is_same_v<T, Choice>) {
      auto name = std::find(field.names.begin(), field.names.end(), text);
      if (name == field.names.end()) return false;
      field.set(size_t(name - field.names.begin()));
      return true;
    } else if constexpr (std::is_same_v<T, std::string*>) {
      return *field = text, true;
    } else if constexpr (std::is_same_v<T, bool*>) {
      return *field = text == "true", *field || text == "false";
    } else {
      return parse_number(text, *field);
    }
  };
  return std::visit(set, s.field);
}

std::string refusal(const Setting& s, const std::string& where, const std::string& value) {
  return fmt::format("{}: `{}`; expected {}", where, printable(value), expected(s));
}

}  // namespace

std::string value_text(const Setting& s) {
  auto text = [&]<class T>(const T& field) -> std::string {
    if constexpr (std::is_same_v<T, Choice>)
      return field.get() < field.names.size() ? field.names[field.get()] : "an unnamed value";
    else return fmt::format("{}", *field);  // of a double: the shortest digits that read back
  };
  return std::visit(text, s.field);
}

Settings joined(std::initializer_list<Settings> lists) {
  Settings all;
  for (const Settings& list : lists) all.insert(all.end(), list.begin(), list.end());
  std::set<std::string> names = {"help"};
  for (const Setting& s : all) {
    check_input(!s.name.empty() && s.name.find_first_not_of(name_letters) == s.name.npos,
                Exit::config, "flag --{}: expected a name of a-z, 0-9 and -", printable(s.name));
    check_input(names.insert(s.name).second, Exit::config,
                "flag --{}: every program has it, or it was added twice; choose another name",
                s.name);
  }
  return all;
}

Settings only(Settings all, std::initializer_list<std::string_view> names) {
  std::erase_if(all, [&](const Setting& s) { return std::ranges::count(names, s.name) == 0; });
  return all;
}

Settings without(Settings all, std::initializer_list<std::string_view> names) {
  std::erase_if(all, [&](const Setting& s) { return std::ranges::count(names, s.name) > 0; });
  return all;
}

bool is_plain_text(std::string_view text) {
  return text.find('\0') == text.npos && nn::is_utf8(text);
}

bool is_text(const Setting& s) {
  return std::holds_alternative<std::string*>(s.field) || std::holds_alternative<Choice>(s.field);
}

bool is_path(const Setting& s) {
  std::string_view last = s.value;  // of `auto|PATH`
  last.remove_prefix(last.rfind('|') + 1);
  return is_text(s) && (last == "FILE" || last == "DIR" || last == "PATH" || last == "CHECKPOINT");
}

bool is_unset(const Setting& s) {
  auto unset = [&]<class T>(const T& field) {
    if constexpr (std::is_same_v<T, std::string*>) return field->empty();
    else if constexpr (std::is_same_v<T, Choice> || std::is_same_v<T, bool*>) return false;
    else return double(*field) == s.range.min;
  };
  return s.derived && std::visit(unset, s.field);
}

std::string expected(const Setting& s) {
  auto* named = std::get_if<Choice>(&s.field);
  const auto& names = named ? named->names : s.choices;
  std::string or_file = s.or_file.empty() ? "" : ", or a file that ends in " + s.or_file;
  if (!names.empty()) return fmt::format("one of: {}{}", join(names, ", "), or_file);
  if (is_text(s)) return "UTF-8 text";
  if (is_switch(s)) return "true or false";
  std::string kind = std::holds_alternative<double*>(s.field) ? "a number" : "a whole number";
  for (auto unit : {"BYTES", "FLOP", "SECONDS"})
    if (s.value.starts_with(unit)) kind += " of " + s.value;
  auto bound = [](double x) {
    return x < int64_limit ? fmt::format("{:.15g}", x) : std::string("2^63 - 1");
  };
  NumberRange r = s.range;
  r.min = least(s);
  if (std::holds_alternative<int*>(s.field)) r.max = std::min(r.max, double(INT32_MAX));
  if (std::isinf(r.max))
    return r.open_min ? fmt::format("{} above {}", kind, bound(r.min))
                      : fmt::format("{}, {} or more", kind, bound(r.min));
  return fmt::format("{} in {}{}, {}{}", kind, r.open_min ? "(" : "[", bound(r.min), bound(r.max),
                     r.open_max ? ")" : "]");
}

void assign(const Setting& s, const std::string& text, const Origin& origin) {
  auto marks = [&] { return s.range.min < least(s) && is_unset(s); };
  if (!read(s, text) || !allowed(s) || marks())
    fail(origin.code, "{}", refusal(s, origin.where, text));
}

void check_values(const Settings& settings) {
  std::vector<std::string> refused;
  for (const Setting& s : settings)
    if (!allowed(s)) refused.push_back(refusal(s, s.name, value_text(s)));
  check_input(refused.empty(), Exit::config, "{}", join(refused, "\n  "));
}

std::string toml_real(double number) {
  std::string digits = fmt::format("{}", number);
  bool integral = digits.find_first_of(".en") == digits.npos;  // 3, but not 0.3, 1e+30 or inf
  return integral ? digits + ".0" : digits;
}

std::string literal(const Setting& s) {
  if (auto* number = std::get_if<double*>(&s.field)) return toml_real(**number);
  return is_text(s) ? with_quotes(value_text(s)) : value_text(s);
}

std::string default_of(const Setting& s) {
  bool given = s.derived && !is_unset(s);  // set by the program, which knows better
  return s.shown.empty() || given ? value_text(s) : s.shown;
}

}  // namespace triax::parallel
