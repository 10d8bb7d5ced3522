#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace triax::minigpt {

/// One `key = value` of a flat TOML file.
struct TomlEntry {
  enum class Kind { text, integer, real, boolean };
  std::string key;
  Kind kind;
  std::string value;  ///< a text without quotes and escapes; a number without underscores
  int line;           ///< from 1
};

/// Read the part of TOML 1.0 (https://toml.io/en/v1.0.0) that a flat configuration needs: bare
/// keys, strings on one line, decimal integers, floats, booleans, comments. Tables, arrays, dates
/// and keys given twice are refused. `name` is the file's, for messages. Throws Error 78 with
/// name and line.
std::vector<TomlEntry> read_toml(std::string_view text, const std::string& name);

/// `text` as a TOML basic string, with its quotes. `text` must be UTF-8.
std::string toml_string(std::string_view text);

}  // namespace triax::minigpt
