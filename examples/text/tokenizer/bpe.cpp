#include "examples/text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <queue>

#include "examples/text/tokenizer/composed.h"
#include "triax/core/check.h"

namespace triax::text {

namespace {

uint64_t key(int32_t left, int32_t right) { return uint64_t(left) << 32 | uint32_t(right); }

/// Returns how many bytes of a text became the first `count` of with_spaces().
size_t bytes_for(std::string_view text, size_t count) {
  size_t at = 0;
  for (; count > 0; --count)
    at += text.substr(at).starts_with(shown_space) ? shown_space.size() : 1;
  return at;
}

}  // namespace

std::string with_spaces(std::string_view text, std::string_view before) {
  std::string spaced;
  spaced.reserve(before.size() + text.size());
  spaced = before;
  for (size_t at = 0; at < text.size();) {
    size_t next = std::min(text.find(shown_space, at), text.size());
    spaced.append(text, at, next - at);
    if (next < text.size()) spaced += ' ';
    at = next + shown_space.size();
  }
  return spaced;
}

Bpe::Bpe(BpeParts parts) : parts_(std::move(parts)) {
  std::unordered_map<std::string_view, int32_t> numbers;
  auto& tokens = parts_.tokens;
  std::vector<bool> only_added(tokens.size());
  for (const AddedToken& a : parts_.added) only_added[size_t(a.token)] = !a.ordinary;
  for (int32_t token : parts_.fallback) only_added[size_t(token)] = true;
  for (size_t i = 0; i < tokens.size(); ++i)  // of equal bytes the first counts
    if (!only_added[i]) numbers.emplace(tokens[i], int32_t(i));
  for (size_t i = 0; i < 256; ++i) {
    auto byte = static_cast<char>(i);
    auto found = numbers.find({&byte, 1});
    check(found != numbers.end() || has_characters(), "bpe: byte {} is no token", i);
    byte_token_[i] = found != numbers.end() ? found->second : parts_.fallback.at(i);
  }
  if (has_characters())
    for (auto& [bytes, number] : numbers)
      if (bytes.size() == character_size(bytes[0])) note_pairs(bytes);
  merges_.resize(std::bit_ceil(4 * parts_.merges.size() + 1));
  int32_t rank = 0;
  for (auto [left, right] : parts_.merges) {
    std::string bytes = tokens.at(size_t(left)) + tokens.at(size_t(right));
    auto both = numbers.find(bytes);
    check_input(both != numbers.end(), Exit::data, "bpe: tokens {} and {} make no token", left,
                right);
    Merge merge{key(left, right), rank, both->second};
    merges_[size_t(&place_of(merge.pair) - merges_.data())] = merge;  // of equals the last counts
    ++rank;
    note_pairs(bytes);
  }
  if (parts_.whole_words || has_characters()) by_bytes_ = std::move(numbers);
}

void Bpe::note_pairs(std::string_view bytes) {
  for (size_t i = 1; i < bytes.size(); ++i)
    joined_[static_cast<unsigned char>(bytes[i - 1])].set(static_cast<unsigned char>(bytes[i]));
}

std::pair<int32_t, size_t> Bpe::first_symbol(std::string_view word) const {
  size_t bytes = has_characters() ? character_size(word[0]) : 1;
  if (bytes > 1)
    if (auto found = by_bytes_.find(word.substr(0, bytes)); found != by_bytes_.end())
      return {found->second, bytes};
  return {byte_token_[static_cast<unsigned char>(word[0])], 1};
}

const Bpe::Merge* Bpe::merge_of(int32_t left, int32_t right) const {
  const Merge& m = place_of(key(left, right));
  return m.pair == UINT64_MAX ? nullptr : &m;
}

const Bpe::Merge& Bpe::place_of(uint64_t pair) const {
  size_t at = (pair * 0x9E3779B97F4A7C15u) >> 32;
  while (true) {
    const Merge& m = merges_[at++ & (merges_.size() - 1)];
    if (m.pair == pair || m.pair == UINT64_MAX) return m;
  }
}

/// The places of words' tokens at their first occurrence. A word has a place by its hash, or the
/// next free one.
class KnownWords {
 public:
  struct Known {
    std::string_view word;  // empty: a free place
    size_t hash = 0, begin = 0, count = 0;
  };

  /// Returns the place of `word`, which has to stay where it is; `count` is 0 if it is new.
  Known& operator[](std::string_view word) {
    if (2 * size_ >= places_.size()) grow();
    size_t hash = std::hash<std::string_view>()(word);
    Known& k = place_of(word, hash);
    if (k.word.empty()) k = {word, hash}, ++size_;
    return k;
  }

 private:
  Known& place_of(std::string_view word, size_t hash) {
    size_t at = hash, mask = places_.size() - 1;
    auto fits = [&](const Known& k) { return k.hash == hash && k.word == word; };
    while (!places_[at & mask].word.empty() && !fits(places_[at & mask])) ++at;
    return places_[at & mask];
  }
  void grow() {
    auto before = std::exchange(places_, std::vector<Known>(2 * places_.size()));
    for (const Known& k : before)
      if (!k.word.empty()) place_of(k.word, k.hash) = k;
  }

  std::vector<Known> places_ = std::vector<Known>(1 << 10);
  size_t size_ = 0;
};

/// Encodes words, each different one once.
class Merger {
 public:
  Merger(const Bpe& bpe, std::vector<int32_t>& tokens) : bpe_(bpe), tokens_(tokens) {}

  /// Encodes a word, which has to stay where it is.
  void encode(std::string_view word) {
    if (word.size() == 1) return tokens_.push_back(byte_token(word[0]));
    auto& k = known_[word];
    if (k.count == 0) {
      k.begin = tokens_.size();
      auto whole = bpe_.parts_.whole_words ? bpe_.by_bytes_.find(word) : bpe_.by_bytes_.end();
      if (whole != bpe_.by_bytes_.end()) tokens_.push_back(whole->second);
      else merge_parts(word);
      k.count = tokens_.size() - k.begin;
    } else {
      size_t size = tokens_.size();
      tokens_.resize(size + k.count);
      std::copy_n(tokens_.begin() + ptrdiff_t(k.begin), k.count, tokens_.begin() + ptrdiff_t(size));
    }
  }

 private:
  struct Symbol {
    int32_t token, before, after;  // neighbours: -1 for none; a token -1 was merged into another
  };
  /// The merge `rank` of the symbol `left` and the one after it, if they still are that.
  struct Candidate {
    int32_t rank, left;
    bool operator>(const Candidate& o) const {
      return rank != o.rank ? rank > o.rank : left > o.left;
    }
  };

  int32_t byte_token(char byte) const { return bpe_.byte_token_[static_cast<unsigned char>(byte)]; }

  /// Returns the merge of the symbol and the one after it; null if there is none.
  const Bpe::Merge* merge_at(int32_t left) const {
    const Symbol& s = symbols_[size_t(left)];
    return s.token < 0 || s.after < 0 ? nullptr
                                      : bpe_.merge_of(s.token, symbols_[size_t(s.after)].token);
  }
  void propose(int32_t left) {
    if (auto* m = merge_at(left)) candidates_.push({m->rank, left});
  }

  /// Cuts a word, which may be megabytes, where no merge can reach across.
  void merge_parts(std::string_view word) {
    size_t begin = 0;
    for (size_t i = 1; i <= word.size(); ++i) {
      if (i < word.size() && bpe_.joins(word[i - 1], word[i])) continue;
      merge(word.substr(begin, i - begin));
      begin = i;
    }
  }

  void merge(std::string_view word) {
    if (word.size() == 1) return tokens_.push_back(byte_token(word[0]));
    symbols_.clear();
    symbols_.reserve(word.size());
    for (size_t at = 0; at < word.size();) {
      auto [token, bytes] = bpe_.first_symbol(word.substr(at));
      auto i = int32_t(symbols_.size());
      symbols_.push_back({token, i - 1, (at += bytes) < word.size() ? i + 1 : -1});
    }
    for (int32_t i = 0; i < int32_t(symbols_.size()); ++i) propose(i);
    while (!candidates_.empty()) {
      Candidate c = candidates_.top();
      candidates_.pop();
      auto* m = merge_at(c.left);
      if (m && m->rank == c.rank) join(c.left, m->token);
    }
    for (int32_t i = 0; i >= 0; i = symbols_[size_t(i)].after)
      tokens_.push_back(symbols_[size_t(i)].token);
  }

  void join(int32_t left, int32_t token) {
    Symbol& s = symbols_[size_t(left)];
    Symbol& gone = symbols_[size_t(s.after)];
    s.token = token;
    s.after = gone.after;
    if (s.after >= 0) symbols_[size_t(s.after)].before = left;
    gone.token = -1;
    if (s.before >= 0) propose(s.before);
    propose(left);
  }

  const Bpe& bpe_;
  std::vector<int32_t>& tokens_;
  KnownWords known_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

/// Finds the added tokens of a text: the late ones, or the others.
class AddedSearch {
 public:
  struct Found {
    size_t at, bytes;
    int32_t token;
  };
  AddedSearch(const std::vector<AddedToken>& added, bool late, std::string_view text, size_t from)
      : text_(text) {
    for (const AddedToken& a : added) {
      if (a.late != late) continue;
      tokens_.push_back({&a, text_.find(a.content, from)});
      longest_ = std::max(longest_, a.content.size());
    }
  }

  size_t longest() const { return longest_; }
  /// Returns the next one from `from` on, the longest of those that begin at one place; at the end
  /// of the text if there is none.
  Found next(size_t from) {
    Found first{text_.size(), 0, -1};
    for (auto& [added, at] : tokens_) {
      const std::string& content = added->content;
      if (at < from) at = text_.find(content, from);
      if (at < first.at || (at == first.at && content.size() > first.bytes))
        first = {at, content.size(), added->token};
    }
    return first;
  }

 private:
  struct Next {
    const AddedToken* added;
    size_t at;  // npos: nowhere
  };
  std::string_view text_;
  std::vector<Next> tokens_;
  size_t longest_ = 1;  // bytes
};

/// Encodes a text: added tokens, between them late ones, and between those words.
class Encoding {
 public:
  Encoding(const Bpe& bpe, const Passage& passage, std::vector<int32_t>& tokens)
      : bpe_(bpe),
        text_(passage.text),
        source_(passage.source),
        is_rest_(passage.is_rest),
        tokens_(tokens),
        words_(bpe.parts_.words, passage.text, passage.source),
        merger_(bpe, tokens) {}

  /// Returns where the tokens end that stay the same whatever follows.
  size_t parts(bool late, const Stretch& s) {
    AddedSearch search(bpe_.parts_.added, late, text_.substr(0, s.end), s.begin);
    // Behind `sure` another added token may begin, which ends in what follows.
    size_t sure = s.end - (s.goes_on ? std::min(s.end - s.begin, search.longest() - 1) : 0);
    sure = s.begin + last_character_end(text_.substr(s.begin, sure - s.begin));
    auto between = [&](const Stretch& part) { return late ? words(part) : composed_parts(part); };
    size_t last = s.begin;  // where the last added token begins
    for (size_t at = s.begin; at < sure;) {
      auto [place, bytes, token] = search.next(at);
      if (place >= sure) {
        size_t end = between({at, sure, s.goes_on});
        return end == at ? before_rest({last, at, s.goes_on}) : end;
      }
      between({at, place});
      tokens_.push_back(token);
      last = place, at = place + bytes;
      if (at >= sure) return before_rest({last, at, s.goes_on});
    }
    return s.begin;
  }

 private:
  /// Returns where the rest begins of a text whose last tokens are an added one, if there is any: a
  /// rest that begins behind it would lack the space that goes there.
  size_t before_rest(const Stretch& added) {
    if (added.begin == added.end || !added.goes_on || !bpe_.has_characters()) return added.end;
    tokens_.pop_back();
    return added.begin;
  }
  /// Encodes a stretch between added tokens, in form C if the tokenizer wants it.
  size_t composed_parts(const Stretch& s) {
    if (!bpe_.parts_.composes) return parts(true, s);
    std::string_view given = text_.substr(s.begin, s.end - s.begin);
    if (s.goes_on) given = given.substr(0, last_place(given));
    for (size_t before = tokens_.size();; tokens_.resize(before)) {
      auto made = composed(given);
      if (!made) return parts(true, {s.begin, s.begin + given.size(), s.goes_on});
      Encoding inner(bpe_, {made->text, source_, s.goes_on}, tokens_);
      size_t reached = inner.parts(true, {0, made->text.size(), s.goes_on});
      if (!s.goes_on) return s.end;
      auto place =
          std::ranges::upper_bound(made->places, reached, {}, &std::pair<size_t, size_t>::first);
      --place;
      if (place->first == reached) return s.begin + place->second;
      given = given.substr(0, place->second);  // tokens end where the original has no place
    }
  }
  size_t words(const Stretch& s) {
    if (bpe_.has_characters()) return spaced_words(s);
    return words_.read(
        s, [this](size_t begin, size_t end) { merger_.encode(text_.substr(begin, end - begin)); });
  }

  /// Returns true if a space is put before a text between added tokens; `first`: at the beginning.
  bool puts_space(std::string_view text, bool first) const {
    Prefix prefix = bpe_.parts_.prefix;
    if (text.empty() || prefix == Prefix::none || (first && is_rest_)) return false;
    bool missing = !text.starts_with(' ') && !text.starts_with(shown_space);
    return prefix == Prefix::all || (missing && (first || prefix == Prefix::missing));
  }
  size_t spaced_words(const Stretch& s) {
    std::string_view given = text_.substr(s.begin, s.end - s.begin);
    bool space = puts_space(given, s.begin == 0);
    const std::string& text = spaced_.emplace_back(with_spaces(given, space ? " " : ""));
    size_t reached = WordReader(bpe_.parts_.words, text, source_)
                         .read({0, text.size(), s.goes_on}, [&](size_t begin, size_t end) {
                           merger_.encode(std::string_view(text).substr(begin, end - begin));
                         });
    return s.begin + bytes_for(given, reached - std::min<size_t>(reached, space));
  }

  const Bpe& bpe_;
  std::string_view text_;
  Source source_;
  bool is_rest_;
  std::vector<int32_t>& tokens_;
  std::deque<std::string> spaced_;  // texts that the merger knows words of
  WordReader words_;
  Merger merger_;
};

std::string Bpe::normal(std::string_view text) const {
  auto made = parts_.composes ? composed(text) : std::nullopt;
  return made ? made->text : std::string(text);
}

size_t Bpe::encode(const Passage& passage, std::vector<int32_t>& tokens) const {
  Passage whole = passage;
  if (whole.goes_on) whole.text = whole.text.substr(0, last_character_end(whole.text));
  tokens.reserve(tokens.size() + whole.text.size() / 4);
  return Encoding(*this, whole, tokens).parts(false, {0, whole.text.size(), whole.goes_on});
}

}  // namespace triax::text
