#pragma once
#include <array>
#include <bitset>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "examples/text/tokenizer/tokenizer.h"
#include "examples/text/tokenizer/words.h"
#include "triax/core/io/json.h"

namespace triax::text {

/// A token that a text becomes wherever it holds `content`, before it is cut into words
/// (`added_tokens`).
struct AddedToken {
  int32_t token;
  std::string content;
  bool late = false;      ///< found only in the text between those that are not (`normalized`)
  bool ordinary = false;  ///< also a token of bytes, to which words are merged
};

/// The texts that get a space before them, as SentencePiece's: all between added tokens
/// (`Prepend`), those of them that begin with none (`Metaspace`), or the first one alone if it
/// begins with none.
enum class Prefix { none, all, missing, first_missing };

/// The parts of BPE.
struct BpeParts {
  std::vector<std::string> tokens;  ///< their bytes, by number; byte-level: every byte is one
  /// The merges, two tokens each, whose bytes together are a token; the first are merged first.
  std::vector<std::pair<int32_t, int32_t>> merges;
  std::vector<AddedToken> added;  ///< by number
  Words words = {};
  bool whole_words = false;  ///< a word that is a token is not merged (`ignore_merges`)
  bool composes = false;     ///< the text between added tokens is brought into form C (composed.h)
  /// The tokens of the 256 bytes, if the first symbols of a word are characters, and U+2581 is a
  /// space: a character that is no token becomes bytes (`byte_fallback`). Empty for byte-level BPE.
  std::vector<int32_t> fallback = {};
  Prefix prefix = Prefix::none;
  /// The tokenizer.json that all this was read from, if `tokenizers` reads it alike. It may hold
  /// more: a post-processor, for instance.
  std::string json = {};
};

/// Byte-pair encoding (Sennrich et al., 2016), of bytes as GPT-2 and Llama 3 have it (Radford et
/// al., 2019), or of characters as Llama 2 has it (SentencePiece; Kudo and Richardson, 2018): the
/// text between special tokens is cut into words (words.h), and in each the adjacent pair of tokens
/// that comes first among the merges is merged, the leftmost of equals, until no merge applies.
class Bpe : public Vocabulary {
 public:
  explicit Bpe(BpeParts parts);
  Bpe(const Bpe&) = delete;

  int64_t size() const override { return std::ssize(parts_.tokens); }
  size_t encode(const Passage& passage, std::vector<int32_t>& tokens) const override;
  void decode(int32_t token, std::string& text) const override {
    text += parts_.tokens[static_cast<size_t>(token)];
  }
  std::string normal(std::string_view text) const override;
  /// Returns a tokenizer.json: as it was read, if it was.
  std::string json() const override;
  std::string identity() const override;

 private:
  friend class Encoding;
  friend class Merger;
  struct Merge {
    uint64_t pair = UINT64_MAX;  // the two tokens; none of them in a free place
    int32_t rank = 0, token = 0;
  };
  /// Returns the place of a pair's merge, free if there is none.
  const Merge& place_of(uint64_t pair) const;
  const Merge* merge_of(int32_t left, int32_t right) const;
  /// Returns a tokenizer.json. `file`: that `tokenizers` reads. `identity`: one text for all that
  /// encode alike, in which added tokens have a list of their own.
  enum class Form { file, identity };
  std::string document(Form form) const;
  bool has_characters() const { return !parts_.fallback.empty(); }
  /// Returns the first symbol of a word, and its bytes.
  std::pair<int32_t, size_t> first_symbol(std::string_view word) const;
  void note_pairs(std::string_view bytes);  // in joined_
  bool joins(char left, char right) const {
    return joined_[static_cast<unsigned char>(left)][static_cast<unsigned char>(right)];
  }

  BpeParts parts_;
  std::array<int32_t, 256> byte_token_{};
  std::array<std::bitset<256>, 256> joined_;  // bytes that follow one another in some merged token
  std::vector<Merge> merges_;  // by their hash; a pair whose place is taken has the next free one
  std::unordered_map<std::string_view, int32_t> by_bytes_;  // if whole_words or has_characters
};

inline constexpr std::string_view shown_space = "\u2581";  ///< a space, as SentencePiece shows it
/// Returns `before`, and a text with spaces in place of U+2581.
std::string with_spaces(std::string_view text, std::string_view before = "");

/// True if a byte prints as Latin-1. Such bytes stand for themselves in files, and are the first
/// tokens.
constexpr bool prints(int byte) {
  return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

/// Reads a tokenizer.json of Hugging Face's `tokenizers`; `name` begins messages. Untrusted. Throws
/// Error 65 for one that is damaged or another kind of tokenizer. `text`: the source of `root`.
std::shared_ptr<const Bpe> bpe_from_json(const nn::JsonReader& root, const std::string& text,
                                         const std::string& name);
using TokenPairs = std::vector<std::pair<std::string, std::string>>;
/// Returns the merges of the `model` of a tokenizer.json, of which `name` is. Throws Error 65.
TokenPairs merges_in(const nn::JsonReader& model, const std::string& name);
/// Reads `vocab.json` and `merges.txt` of a directory, and `added_tokens.json` if it is there. They
/// do not say how words are cut: as GPT-2 does. Untrusted. Throws Error 65, and 66 if one is
/// missing.
std::shared_ptr<const Bpe> bpe_from_two_files(const std::string& directory);
inline constexpr int deepest_tokenizer = 16;  ///< nesting of a tokenizer.json
/// The advice behind a refusal of a tokenizer that cannot be read here.
inline constexpr const char* other_tokenizers =
    "\n  Tokens of any tokenizer can be trained on: docs/data.md has the lines of Python that "
    "write them to train.bin and val.bin for --data DIR; export --tokenizer DIR takes its files "
    "along.";

/// Learns `size` tokens from a text: the 256 bytes, in the order of GPT-2's, then merges, then
/// <|endoftext|>. The pair that occurs most often is merged; of equals the one whose left token has
/// the smallest number, then whose right one has. Pairs that occur once are not merged, so there
/// may be fewer tokens. The merges are those of `tokenizers`. Throws Error 65 if the text is not
/// UTF-8.
Tokenizer learn_bpe(std::string_view text, int64_t size, const Source& source = {});
inline constexpr int64_t least_bpe = 257, most_bpe = 1 << 20;

}  // namespace triax::text
