#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triax::text {

/// Characters to numbers: token i is the i-th of a sorted set of Unicode code points.
class Tokenizer {
 public:
  /// All characters of `text`, UTF-8. `name` begins messages. Throws Error 65 if it is empty or not
  /// UTF-8.
  static Tokenizer from_text(std::string_view text, const std::string& name = "tokenizer");
  /// What json() gave; untrusted. `name` begins messages. Throws Error 65.
  static Tokenizer from_json(const std::string& json, const std::string& name);

  /// Number of tokens.
  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  /// Throws Error 65 with the byte position for a character without token, and for bytes that are
  /// not UTF-8.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Throws Error 65 for a number that is no token (a model may have more rows than tokens).
  std::string decode(std::span<const int32_t> tokens) const;

  std::string json() const;
  /// 16 hexadecimal digits, FNV-1a over the code points: equal for equal vocabularies.
  std::string hash() const;

 private:
  explicit Tokenizer(std::vector<char32_t> characters) : characters_(std::move(characters)) {}
  std::vector<char32_t> characters_;  // ascending
};

}  // namespace triax::text
