#include "examples/text/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "examples/text/utf8.h"

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
  nlohmann::ordered_json root;
  root["format"] = format;
  root["version"] = version;
  root["characters"] = characters;
  return root.dump(2) + "\n";
}

Tokenizer Tokenizer::from_json(const std::string& json, const std::string& name) {
  auto root = nlohmann::json::parse(json, nullptr, false);
  check_input(root.is_object(), Exit::data, "tokenizer: {}: not a JSON object", name);
  auto has = [&](const char* key, const nlohmann::json& expected) {
    auto found = root.find(key);
    check_input(found != root.end() && *found == expected, Exit::data,
                "tokenizer: {}: `{}` is not {}; expected a tokenizer of triax, version {}", name,
                key, expected.dump(), version);
  };
  has("format", format);
  has("version", version);
  auto found = root.find("characters");
  check_input(found != root.end() && found->is_string(), Exit::data,
              "tokenizer: {}: no text `characters`", name);
  auto characters = code_points(found->get_ref<const std::string&>(), name);
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
