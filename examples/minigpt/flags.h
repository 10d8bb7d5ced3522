#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/error.h"

namespace triax::minigpt {

/// What a number may be; it is finite in any case.
struct Range {
  double min = 0;
  double max = std::numeric_limits<double>::infinity();
  bool open_max = false;  ///< `max` itself is not allowed
};

/// One flag of a verb, which is also a key of its configuration files.
struct Flag {
  std::string name;   ///< without dashes: `micro-batch`
  std::string group;  ///< heading in --help
  std::string value;  ///< what stands for the value in --help: `N`; empty for a bool
  std::string help;
  /// Holds the default until assigned. A bool needs no value: its name alone means true.
  std::variant<int64_t*, double*, std::string*, bool*> field;
  Range range = {};
  std::vector<std::string> choices = {};  ///< of a text; empty: any
  std::string shown = {};                 ///< the default in words, where the value does not say it
  bool key = true;                        ///< may stand in a configuration file
};
using Flags = std::vector<Flag>;

/// Where a value comes from: what begins a message about it, and the code it is refused with.
struct Origin {
  Exit code;
  std::string where;
};

/// Read the value from text. Throws `origin.code`, naming the valid values.
void assign(const Flag& flag, const std::string& text, const Origin& origin);
/// Throws `origin.code` unless the value that the flag has now is allowed.
void check_value(const Flag& flag, const Origin& origin);

/// Assign a configuration file. Throws Error 78 with the line for a bad key or value, 66 if there
/// is no such file, 65 if it is no plain file.
void read_config(const Flags& flags, const std::string& path);
/// A configuration file that read_config takes; texts and numbers read back exactly.
std::string to_toml(const Flags& flags);

/// Is its name alone a value?
inline bool is_switch(const Flag& flag) { return std::holds_alternative<bool*>(flag.field); }

/// The value as a configuration file has it.
std::string literal(const Flag& flag);
/// The value as a reader wants it: `shown` if there is one.
std::string default_of(const Flag& flag);

/// The candidate with the smallest edit distance to `word`, the first of equals.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace triax::minigpt
