#include "examples/text/tokenizer.h"

#include "core/check.h"
#include "examples/text/bpe.h"
#include "examples/text/characters.h"
#include "examples/text/numbers.h"
#include "nn/json.h"

namespace triax::text {

Tokenizer Tokenizer::from_text(std::string_view text, const std::string& name) {
  CharacterSet characters;
  characters.add(text, {name});
  return Tokenizer(characters.vocabulary(name));
}

Tokenizer Tokenizer::from_json(const std::string& json, const std::string& name) {
  nn::JsonReader root(json, "tokenizer: " + name, "the file", deepest_tokenizer);
  if (root.has("model")) return Tokenizer(bpe_from_json(root, name));
  if (root.has("rows")) return Tokenizer(std::make_shared<Numbers>(root));
  return Tokenizer(std::make_shared<Characters>(root, name));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const Source& source) const {
  std::vector<int32_t> tokens;
  v_->encode(text, source, tokens);
  return tokens;
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

uint64_t fnv1a(std::string_view bytes, uint64_t hash) {
  for (char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

}  // namespace triax::text
