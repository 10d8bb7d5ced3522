#include "examples/text/tokenizer.h"

#include <algorithm>

#include "core/check.h"
#include "examples/text/utf8.h"
#include "nn/json.h"

namespace triax::text {

namespace {

constexpr const char* format = "triax-characters";
constexpr int version = 1;

std::vector<char32_t> code_points(std::string_view text, std::string_view name) {
  std::vector<char32_t> points;
  for (size_t at = 0; at < text.size();) points.push_back(next_code_point(text, at, name));
  return points;
}

}  // namespace

Tokenizer Tokenizer::from_text(std::string_view text, const std::string& name) {
  std::vector<bool> seen(0x110000);
  for (size_t at = 0; at < text.size();) seen[next_code_point(text, at, name)] = true;
  std::vector<char32_t> characters;
  for (size_t c = 0; c < seen.size(); ++c) {
    if (seen[c]) characters.push_back(static_cast<char32_t>(c));
  }
  check_input(!characters.empty(), Exit::data, "{}: the text is empty", name);
  return Tokenizer(std::move(characters));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = next_code_point(text, at, "tokenizer");
    auto found = std::lower_bound(characters_.begin(), characters_.end(), c);
    check_input(found != characters_.end() && *found == c, Exit::data,
                "tokenizer: character {} at byte {} is not in the vocabulary of {} characters",
                describe(c), start, size());
    tokens.push_back(static_cast<int32_t>(found - characters_.begin()));
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (int32_t token : tokens) {
    check_input(token >= 0 && token < size(), Exit::data,
                "tokenizer: {} is no token; expected 0 to {}", token, size() - 1);
    append_utf8(text, characters_[static_cast<size_t>(token)]);
  }
  return text;
}

std::string Tokenizer::json() const {
  std::string characters;
  for (char32_t c : characters_) append_utf8(characters, c);
  return fmt::format("{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"characters\": {}\n}}\n",
                     format, version, nn::quoted(characters));
}

Tokenizer Tokenizer::from_json(const std::string& json, const std::string& name) {
  nn::JsonReader root(json, "tokenizer: " + name, "the file", 1);
  root.require(root.at("format").text() == format && root.at("version").number() == version,
               fmt::format("is of another format; expected {}, version {}", format, version));
  auto characters = code_points(root.at("characters").text(), name);
  check_input(!characters.empty(), Exit::data, "tokenizer: {}: `characters` is empty", name);
  for (size_t i = 1; i < characters.size(); ++i) {
    check_input(characters[i - 1] < characters[i], Exit::data,
                "tokenizer: {}: character {} follows {}; expected ascending code points", name,
                describe(characters[i]), describe(characters[i - 1]));
  }
  return Tokenizer(std::move(characters));
}

std::string Tokenizer::hash() const {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, over four bytes a character, little end first
  for (char32_t c : characters_) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (c >> shift & 0xFF)) * 0x100000001b3u;
    }
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace triax::text
