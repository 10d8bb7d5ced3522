#include "examples/text/tokenizer/characters.h"

#include <algorithm>

#include "triax/core/check.h"

namespace triax::text {

namespace {

constexpr const char* format = "triax-characters";
constexpr int version = 1;

}  // namespace

Characters::Characters(const nn::JsonReader& root, const std::string& name) {
  root.require(root.at("format").text() == format && root.at("version").number() == version,
               fmt::format("is of another format; expected {}, version {}", format, version));
  std::string text = root.at("characters").text();
  for (size_t at = 0; at < text.size();) characters_.push_back(next_code_point(text, at, {name}));
  check_input(!characters_.empty(), Exit::data, "tokenizer: {}: `characters` is empty", name);
  for (size_t i = 1; i < characters_.size(); ++i) {
    check_input(characters_[i - 1] < characters_[i], Exit::data,
                "tokenizer: {}: character {} follows {}; expected ascending code points", name,
                describe(characters_[i]), describe(characters_[i - 1]));
  }
}

size_t Characters::encode(const Passage& passage, std::vector<int32_t>& tokens) const {
  auto& source = passage.source;
  auto text = passage.text;
  if (passage.goes_on) text = text.substr(0, last_character_end(text));
  tokens.reserve(tokens.size() + text.size());
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = next_code_point(text, at, source);
    auto found = std::lower_bound(characters_.begin(), characters_.end(), c);
    check_input(found != characters_.end() && *found == c, Exit::data,
                "{}: character {} at byte {} is not in the vocabulary of {} characters",
                source.name, describe(c), source.first + start, size());
    tokens.push_back(static_cast<int32_t>(found - characters_.begin()));
  }
  return text.size();
}

void Characters::decode(int32_t token, std::string& text) const {
  append_utf8(text, characters_[static_cast<size_t>(token)]);
}

std::string Characters::json() const {
  std::string characters;
  for (char32_t c : characters_) append_utf8(characters, c);
  return fmt::format("{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"characters\": {}\n}}\n",
                     format, version, nn::quoted(characters));
}

std::string Characters::identity() const {
  std::string bytes;
  for (char32_t c : characters_)
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(c >> shift));
  return bytes;
}

void CharacterSet::add(std::string_view text, const Source& source) {
  for (size_t at = 0; at < text.size();) seen_[next_code_point(text, at, source)] = true;
}

std::shared_ptr<const Characters> CharacterSet::vocabulary(const std::string& name) const {
  std::vector<char32_t> characters;
  for (size_t c = 0; c < seen_.size(); ++c)
    if (seen_[c]) characters.push_back(static_cast<char32_t>(c));
  check_input(!characters.empty(), Exit::data, "{}: the text is empty", name);
  return std::make_shared<Characters>(std::move(characters));
}

}  // namespace triax::text
