#pragma once
#include <fmt/core.h>

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "triax/core/device.h"
#include "triax/core/dtype.h"
#include "triax/core/error.h"
#include "triax/core/shape.h"

// Kept out of the headers that .cu files include: fmt 9 does not compile under nvcc 13.

namespace triax {
class Tensor;
std::string str(const Tensor& x);

/// Formats types without a formatter of their own for `{}`, as `str` or `name` does.
template <class T> struct PlainFormatter {
  constexpr auto parse(fmt::format_parse_context& c) { return c.begin(); }
  template <class Context> auto format(const T& value, Context& c) const {
    auto to = c.out();
    for (char x : text(value)) *to++ = x;
    return to;
  }
  static std::string text(const Shape& s) { return str(s); }
  static std::string text(const Device& d) { return str(d); }
  static std::string text(const Tensor& x) { return str(x); }
  static std::string text(DType t) { return name(t); }
};
}  // namespace triax
template <> struct fmt::formatter<triax::Shape> : triax::PlainFormatter<triax::Shape> {};
template <> struct fmt::formatter<triax::Device> : triax::PlainFormatter<triax::Device> {};
template <> struct fmt::formatter<triax::Tensor> : triax::PlainFormatter<triax::Tensor> {};
template <> struct fmt::formatter<triax::DType> : triax::PlainFormatter<triax::DType> {};

namespace triax {

/// Returns f of each item, in their order; f may be a member.
template <class Range, class F> auto transformed(Range&& items, F f) {
  std::vector<std::decay_t<decltype(std::invoke(f, *std::begin(items)))>> all;
  for (auto&& item : items) all.push_back(std::invoke(f, item));
  return all;
}

/// Returns the items as `{}` writes them, with `separator` in between.
template <class Range> std::string join(const Range& items, std::string_view separator) {
  std::string text;
  for (auto item = items.begin(); item != items.end(); ++item) {
    if (item != items.begin()) text += separator;
    text += fmt::format("{}", *item);
  }
  return text;
}

/// Returns `1 rank`, `3 ranks`.
template <class Number> std::string counted(Number count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// A format string, checked at compile time, that remembers where it stands.
template <class... Args> struct LocatedFormat {
  template <class S>
  requires std::is_convertible_v<const S&, fmt::string_view>
  consteval LocatedFormat(const S& s, const char* from = __builtin_FILE(),
                          int at = __builtin_LINE())
      : text(s), file(from), line(at) {}
  fmt::format_string<Args...> text;
  const char* file;
  int line;
};

/// Throws; out of line, since a check is compiled at thousands of places.
[[noreturn]] void throw_error(Exit code, std::string&& what, const char* file, int line);

/// Throws an Error with `code`.
template <class... Args>
[[noreturn]] void fail(Exit code, LocatedFormat<std::type_identity_t<Args>...> what,
                       Args&&... args) {
  throw_error(code, fmt::vformat(what.text, fmt::make_format_args(args...)), what.file, what.line);
}

/// Throws an Error unless `ok`. `check` is for misuse by the caller (code 70), `check_input` for
/// what a user brings: configuration, files, data.
template <class... Args>
void check(bool ok, LocatedFormat<std::type_identity_t<Args>...> what, Args&&... args) {
  if (!ok) [[unlikely]]
    fail<Args...>(Exit::internal, what, std::forward<Args>(args)...);
}
template <class... Args>
void check_input(bool ok, Exit code, LocatedFormat<std::type_identity_t<Args>...> what,
                 Args&&... args) {
  if (!ok) [[unlikely]]
    fail<Args...>(code, what, std::forward<Args>(args)...);
}

}  // namespace triax
