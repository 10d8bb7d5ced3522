#pragma once
#include "examples/text/tokenizer/tokenizer.h"
#include "triax/core/io/json.h"

namespace triax::text {

/// Maps characters to numbers: token i is the i-th of a sorted set of Unicode code points.
class Characters : public Vocabulary {
 public:
  /// Takes characters in ascending order, at least one.
  explicit Characters(std::vector<char32_t> characters) : characters_(std::move(characters)) {}
  /// Reads a text of json(). Throws Error 65.
  Characters(const nn::JsonReader& root, const std::string& name);

  int64_t size() const override { return std::ssize(characters_); }
  const char* unit() const override { return "characters"; }
  size_t encode(const Passage& passage, std::vector<int32_t>& tokens) const override;
  void decode(int32_t token, std::string& text) const override;
  std::string json() const override;
  /// Returns four bytes a character, little end first.
  std::string identity() const override;

 private:
  std::vector<char32_t> characters_;
};

/// The characters of a text that comes in pieces.
class CharacterSet {
 public:
  void add(std::string_view text, const Source& source);
  /// Returns their vocabulary. Throws Error 65 if there are none.
  std::shared_ptr<const Characters> vocabulary(const std::string& name) const;

 private:
  std::vector<bool> seen_ = std::vector<bool>(0x110000);
};

}  // namespace triax::text
