#pragma once
#include <fmt/format.h>

#include <type_traits>

#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/shape.h"

// Kept out of the headers that .cu files include: fmt 9 does not compile under nvcc 13.

template <> struct fmt::formatter<triax::Shape> : fmt::formatter<std::string> {
  template <class Context> auto format(const triax::Shape& s, Context& c) const {
    return fmt::formatter<std::string>::format(triax::str(s), c);
  }
};
template <> struct fmt::formatter<triax::DType> : fmt::formatter<const char*> {
  template <class Context> auto format(triax::DType t, Context& c) const {
    return fmt::formatter<const char*>::format(triax::name(t), c);
  }
};
template <> struct fmt::formatter<triax::Device> : fmt::formatter<std::string> {
  template <class Context> auto format(triax::Device d, Context& c) const {
    return fmt::formatter<std::string>::format(triax::str(d), c);
  }
};

namespace triax {

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

/// Out of line, since a check is compiled at thousands of places.
[[noreturn]] void throw_error(Exit code, std::string&& what, const char* file, int line);

/// Throw an Error with `code`.
template <class... Args>
[[noreturn]] void fail(Exit code, LocatedFormat<std::type_identity_t<Args>...> what,
                       Args&&... args) {
  throw_error(code, fmt::vformat(what.text, fmt::make_format_args(args...)), what.file, what.line);
}

/// Throw an Error unless `ok`. `check` is for misuse by the caller (code 70), `check_input` for
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
