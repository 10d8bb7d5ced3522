#include "examples/text/tokenizer/tokenizer.h"

#include <algorithm>

#include "examples/text/tokenizer/bpe.h"
#include "examples/text/tokenizer/characters.h"
#include "examples/text/tokenizer/numbers.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"

namespace triax::text {

Tokenizer Tokenizer::from_text(std::string_view text, const std::string& name) {
  CharacterSet characters;
  characters.add(text, {name});
  return Tokenizer(characters.vocabulary(name));
}

Tokenizer Tokenizer::from_json(const std::string& json, const std::string& name) {
  nn::JsonReader root(json, "tokenizer: " + name, "the file", deepest_tokenizer);
  if (root.has("model")) return Tokenizer(bpe_from_json(root, json, name));
  if (root.has("rows")) return Tokenizer(std::make_shared<Numbers>(root));
  return Tokenizer(std::make_shared<Characters>(root, name));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const Source& source) const {
  std::vector<int32_t> tokens;
  v_->encode({text, source}, tokens);
  return tokens;
}

std::optional<int32_t> Tokenizer::token(std::string_view text) const try {
  std::vector<int32_t> tokens;
  v_->encode({.text = text, .is_rest = true}, tokens);
  return tokens.size() == 1 ? std::optional(tokens[0]) : std::nullopt;
} catch (const Error&) {  // not of its characters
  return {};
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (int32_t token : tokens) {
    check_input(token >= 0 && token < size(), Exit::data,
                "tokenizer: {} is no token; expected 0 to {}", token, size() - 1);
    v_->decode(token, text);
  }
  return text;
}

std::string Tokenizer::hash() const {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char byte : v_->identity())
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

std::optional<Tokenizer> find_tokenizer(const std::string& directory) {
  auto names = disk().list(directory);
  auto has = [&](const char* name) { return std::ranges::count(names, name) > 0; };
  std::string one = directory + "/tokenizer.json";
  if (has("tokenizer.json"))
    return Tokenizer::from_json(disk().read(one, largest_tokenizer_file), one);
  if (has("vocab.json")) return Tokenizer(bpe_from_two_files(directory));
  return {};
}

Tokenizer read_tokenizer(const std::string& directory) {
  auto found = find_tokenizer(directory);
  check_input(found.has_value(), Exit::not_found,
              "tokenizer: {}: there is no tokenizer.json, and no vocab.json with a merges.txt\n"
              "  Expected the directory of GPT-2's tokenizer, or of another BPE.{}",
              directory, other_tokenizers);
  return *found;
}

}  // namespace triax::text
