#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace triax::nn {

/// Returns `text` as a JSON string, in quotes. Error 70 if it is not UTF-8.
std::string quoted(std::string_view text);
/// True for UTF-8 (The Unicode Standard, table 3-7: no overlong forms, no surrogates).
bool is_utf8(std::string_view text);

/// Checked access to untrusted JSON. A value of another type or size is Error 65 naming source and
/// place: `SOURCE, shape of w is not an array of at most 8`.
class JsonReader {
 public:
  /// Reads a document without repeated keys, zero bytes, or nesting deeper than `deepest`. `what`
  /// names it in messages.
  JsonReader(std::string_view text, std::string source, std::string what, int deepest);

  bool has(const char* key) const;
  JsonReader at(const char* key) const;
  uint64_t number(uint64_t limit = uint64_t(INT64_MAX)) const;
  int64_t size() const { return int64_t(number()); }
  double real() const;  ///< any number
  std::string text() const;
  bool is_text() const;
  bool is_object() const;
  /// Returns the value as JSON: `0.1`, `true`, `[0.9,0.95]`, a text in quotes.
  std::string literal() const;
  bool is_null() const;
  /// Returns true or false.
  bool flag() const;
  std::vector<JsonReader> elements(size_t at_most) const;
  std::vector<int64_t> sizes(size_t at_most) const;
  std::map<std::string, JsonReader> members() const;
  /// Throws `SOURCE, PLACE otherwise` unless `ok`.
  void require(bool ok, const std::string& otherwise) const;

 private:
  struct Document;
  JsonReader inner(const nlohmann::json& value, const std::string& name) const;

  std::shared_ptr<const Document> document_;
  const nlohmann::json* value_;
  std::string what_;
};

}  // namespace triax::nn
