#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "examples/text/tokenizer/utf8.h"

namespace triax::text {

/// A text to encode.
struct Passage {
  std::string_view text;
  Source source = {};
  bool goes_on = false;  ///< more text follows, not known yet; this may end inside a character
  bool is_rest = false;  ///< text came before it, whose tokens are known
};

/// The vocabulary and rules of a kind of tokenizer: characters (characters.h), BPE (bpe.h), or
/// numbers whose meaning nobody knows (numbers.h).
class Vocabulary {
 public:
  virtual ~Vocabulary() = default;
  virtual int64_t size() const = 0;
  /// Returns the name of its tokens: `characters`, `tokens`.
  virtual const char* unit() const { return "tokens"; }
  virtual size_t encode(const Passage& passage, std::vector<int32_t>& tokens) const = 0;
  /// Appends the bytes of a token, 0 to size() - 1.
  virtual void decode(int32_t token, std::string& text) const = 0;
  virtual std::string json() const = 0;
  /// Returns false if nobody knows the text of its tokens.
  virtual bool has_texts() const { return true; }
  /// Implements Tokenizer::normal.
  virtual std::string normal(std::string_view text) const { return std::string(text); }
  /// Returns a text that is equal for equal vocabularies, and for no others.
  virtual std::string identity() const { return json(); }
};

/// Turns texts to numbers and back. A cheap handle.
class Tokenizer {
 public:
  explicit Tokenizer(std::shared_ptr<const Vocabulary> vocabulary) : v_(std::move(vocabulary)) {}
  /// Returns a tokenizer of all characters of `text`, UTF-8. `name` begins messages. Throws Error
  /// 65 if it is empty or not UTF-8.
  static Tokenizer from_text(std::string_view text, const std::string& name = "tokenizer");
  /// Reads a text of json(), or another tokenizer.json of BPE; untrusted. `name` begins
  /// messages. Throws Error 65.
  static Tokenizer from_json(const std::string& json, const std::string& name);

  /// Returns the number of tokens.
  int64_t size() const { return v_->size(); }
  const char* unit() const { return v_->unit(); }
  /// Returns false for numbers of tokens whose text nobody knows (numbers.h).
  bool has_texts() const { return v_->has_texts(); }
  /// Encodes a text. Throws Error 65 with the byte position for a character without token, and for
  /// bytes that are not UTF-8. From any thread.
  std::vector<int32_t> encode(std::string_view text, const Source& source = {}) const;
  /// Returns the text that the tokens of a text without added tokens are the bytes of, but for
  /// spaces: SentencePiece's tokenizers may put one before a text, and have one for U+2581.
  std::string normal(std::string_view text) const { return v_->normal(text); }
  /// Returns the token that a text is, if it is one.
  std::optional<int32_t> token(std::string_view text) const;
  /// Appends the tokens; of a text that goes on, those that stay the same whatever follows. Returns
  /// how many bytes they stand for; the rest can be encoded on its own, as a rest.
  size_t encode(const Passage& passage, std::vector<int32_t>& tokens) const {
    return v_->encode(passage, tokens);
  }
  /// Returns bytes: a token may be a part of a character. Throws Error 65 for a number that is no
  /// token (a model may have more rows than tokens).
  std::string decode(std::span<const int32_t> tokens) const;

  /// Returns a JSON document. That of BPE is a tokenizer.json of Hugging Face's `tokenizers`.
  std::string json() const { return v_->json(); }
  /// Returns the FNV-1a of identity(), in 16 hexadecimal digits.
  std::string hash() const;

 private:
  std::shared_ptr<const Vocabulary> v_;
};

/// Returns the tokenizer of a directory, of any kind: a tokenizer.json, of a run, of `data` or of
/// Hugging Face's `tokenizers`, or else a vocab.json. Untrusted. None if neither is there. Throws
/// what from_json and bpe_from_two_files throw.
std::optional<Tokenizer> find_tokenizer(const std::string& directory);
/// Returns it too, but throws Error 66 if there is none.
Tokenizer read_tokenizer(const std::string& directory);
inline constexpr uint64_t largest_tokenizer_file = uint64_t{64} << 20;

/// The largest vocabulary that is believed.
inline constexpr int64_t most_tokens = 1 << 22;

}  // namespace triax::text
