#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/text/tokenizer/utf8.h"
#include "triax/core/io/json.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace triax::text {

/// A step in which a text is cut: at the matches of a pattern, in the syntax of `tokenizers`.
struct WordSplit {
  /// The fate of a match: a word, nothing, one word with the matches next to it, or a part of the
  /// word before or behind it. The text between matches is a word.
  enum class Match { isolated, removed, contiguous, merged_with_previous, merged_with_next };

  std::string pattern;
  Match match = Match::isolated;
  bool invert = false;  ///< the text between matches is a match, and a match is not
  bool operator==(const WordSplit&) const = default;
};

/// The pattern of GPT-2 (Radford et al., 2019).
inline constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The rule that cuts a text into words, which BPE does not merge across: each step cuts
/// the words of the one before. A cheap handle.
class Words {
 public:
  /// Cuts texts as GPT-2 does.
  Words() : Words({{std::string(gpt2_pattern)}}) {}
  /// Throws Error 65 for a pattern that is damaged or not supported.
  explicit Words(std::vector<WordSplit> splits);

  const std::vector<WordSplit>& splits() const { return splits_; }

 private:
  friend class WordReader;
  std::vector<WordSplit> splits_;
  std::vector<std::shared_ptr<pcre2_real_code_8>> codes_;
  std::vector<std::pair<char32_t, char32_t>> named_;  // characters in patterns: first, last
};

/// The bytes [begin, end) of a text.
struct Stretch {
  size_t begin, end;
  bool goes_on = false;  ///< more text follows, not known yet
};

/// Cuts one text into words.
class WordReader {
 public:
  using Take = std::function<void(size_t begin, size_t end)>;

  /// `words` and `text` must outlive it. Throws Error 65 for bytes that are not UTF-8, and for a
  /// character newer than PCRE2's Unicode that a pattern names, or whose script it may name.
  WordReader(const Words& words, std::string_view text, const Source& source);
  WordReader(const WordReader&) = delete;  // text_ may view known_

  /// Calls `take` for the words of a stretch, as if nothing were around it; of one that goes on,
  /// for those that stay the same whatever follows. Returns where they end. Throws Error 65 if a
  /// pattern needs too much time.
  size_t read(const Stretch& stretch, const Take& take) { return split(0, stretch, take); }

 private:
  struct Found {
    size_t begin, end;  // begin == end: no match; it may begin there, if the stretch goes on
  };
  size_t split(size_t step, const Stretch& stretch, const Take& take);
  Found find(size_t step, const Stretch& stretch, size_t from) const;

  const Words& words_;
  std::string_view text_;
  Source source_;
  std::string known_;  // the text, if it has added_characters: others are in their place
  std::shared_ptr<pcre2_real_match_data_8> found_;
};

/// Reads the pre_tokenizer of a tokenizer.json: ByteLevel, alone or as the last of a Sequence of
/// Split and Digits. Throws Error 65 for another one.
Words words_from_json(const nn::JsonReader& pre_tokenizer);
/// Returns a pre_tokenizer that cuts texts in the same way; equal for equal splits.
std::string to_json(const Words& words);

/// Returns the flag `key`; `otherwise` where it is absent or null.
bool flag_in(const nn::JsonReader& object, const char* key, bool otherwise);

}  // namespace triax::text
