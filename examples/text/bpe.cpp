#include "examples/text/bpe.h"

#include <algorithm>
#include <queue>

#include "core/check.h"

namespace triax::text {

namespace {

uint64_t key(int32_t left, int32_t right) { return uint64_t(left) << 32 | uint32_t(right); }

}  // namespace

Bpe::Bpe(BpeParts parts) : parts_(std::move(parts)) {
  std::unordered_map<std::string_view, int32_t> numbers;
  for (size_t i = 0; i < parts_.tokens.size(); ++i)  // of equal bytes the first counts
    numbers.emplace(parts_.tokens[i], int32_t(i));
  for (size_t i = 0; i < 256; ++i) {
    auto byte = static_cast<char>(i);
    auto found = numbers.find({&byte, 1});
    check(found != numbers.end(), "bpe: byte {} is no token", i);
    byte_token_[i] = found->second;
  }
  for (auto [left, right] : parts_.merges) {
    const auto& tokens = parts_.tokens;
    auto both = numbers.find(tokens.at(size_t(left)) + tokens.at(size_t(right)));
    check(both != numbers.end(), "bpe: tokens {} and {} make no token", left, right);
    auto rank = int32_t(std::ssize(merges_));
    merges_.try_emplace(key(left, right), Merge{rank, both->second});
  }
  if (parts_.whole_words) whole_words_ = std::move(numbers);
}

const Bpe::Merge* Bpe::merge_of(int32_t left, int32_t right) const {
  auto found = merges_.find(key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

/// Encodes words, each different one once.
class Merger {
 public:
  Merger(const Bpe& bpe, std::vector<int32_t>& tokens) : bpe_(bpe), tokens_(tokens) {}

  /// `word` has to stay where it is.
  void encode(std::string_view word) {
    if (word.size() == 1) return tokens_.push_back(byte_token(word[0]));
    auto [known, is_new] = known_.try_emplace(word, Known{tokens_.size(), 0});
    Known& k = known->second;
    if (is_new) {
      auto whole = bpe_.whole_words_.find(word);
      if (whole != bpe_.whole_words_.end()) tokens_.push_back(whole->second);
      else merge(word);
      k.count = tokens_.size() - k.begin;
    } else {
      size_t size = tokens_.size();
      tokens_.resize(size + k.count);
      std::copy_n(tokens_.begin() + ptrdiff_t(k.begin), k.count, tokens_.begin() + ptrdiff_t(size));
    }
  }

 private:
  struct Known {  // where its tokens are, of the first time
    size_t begin, count;
  };
  struct Symbol {
    int32_t token, before, after;  // neighbours: -1 for none; a token -1 was merged into another
  };
  struct Candidate {
    int32_t rank, left, token;        // the symbol `left` and the one after it make `token`
    int32_t left_token, right_token;  // as they were
    bool operator>(const Candidate& o) const {
      return rank != o.rank ? rank > o.rank : left > o.left;
    }
  };

  int32_t byte_token(char byte) const { return bpe_.byte_token_[static_cast<unsigned char>(byte)]; }

  void propose(int32_t left) {
    const Symbol& s = symbols_[size_t(left)];
    if (s.after < 0) return;
    int32_t right = symbols_[size_t(s.after)].token;
    if (auto* m = bpe_.merge_of(s.token, right))
      candidates_.push({m->rank, left, m->token, s.token, right});
  }

  /// A pair may have become another since it was proposed.
  bool is_stale(const Candidate& c) const {
    const Symbol& s = symbols_[size_t(c.left)];
    return s.token != c.left_token || s.after < 0 ||
           symbols_[size_t(s.after)].token != c.right_token;
  }

  void merge(std::string_view word) {
    symbols_.clear();
    auto count = int32_t(word.size());
    for (int32_t i = 0; i < count; ++i)
      symbols_.push_back({byte_token(word[size_t(i)]), i - 1, i + 1 < count ? i + 1 : -1});
    for (int32_t i = 0; i < count; ++i) propose(i);
    while (!candidates_.empty()) {
      Candidate c = candidates_.top();
      candidates_.pop();
      if (!is_stale(c)) join(c);
    }
    for (int32_t i = 0; i >= 0; i = symbols_[size_t(i)].after)
      tokens_.push_back(symbols_[size_t(i)].token);
  }

  void join(const Candidate& c) {
    Symbol& s = symbols_[size_t(c.left)];
    Symbol& gone = symbols_[size_t(s.after)];
    s.token = c.token;
    s.after = gone.after;
    if (s.after >= 0) symbols_[size_t(s.after)].before = c.left;
    gone.token = -1;
    if (s.before >= 0) propose(s.before);
    propose(c.left);
  }

  const Bpe& bpe_;
  std::vector<int32_t>& tokens_;
  std::unordered_map<std::string_view, Known> known_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

/// Where the special tokens of a text are.
class SpecialSearch {
 public:
  struct Found {
    size_t at, bytes;
    int32_t token;
  };
  SpecialSearch(const BpeParts& parts, const std::vector<int32_t>& specials, std::string_view text,
                size_t from)
      : parts_(parts), specials_(specials), text_(text) {
    for (int32_t token : specials_) next_.push_back(text_.find(bytes_of(token), from));
  }

  /// The next one from `from` on, the longest of those that begin at one place; at the end of the
  /// text if there is none.
  Found next(size_t from) {
    Found first{text_.size(), 0, -1};
    for (size_t i = 0; i < next_.size(); ++i) {
      int32_t token = specials_[i];
      const std::string& bytes = bytes_of(token);
      if (next_[i] < from) next_[i] = text_.find(bytes, from);
      size_t at = next_[i];
      if (at < first.at || (at == first.at && bytes.size() > first.bytes))
        first = {at, bytes.size(), token};
    }
    return first;
  }

 private:
  const std::string& bytes_of(int32_t token) const { return parts_.tokens[size_t(token)]; }

  const BpeParts& parts_;
  const std::vector<int32_t>& specials_;
  std::string_view text_;
  std::vector<size_t> next_;  // of each special token; npos: none
};

void Bpe::encode(std::string_view text, const Source& source, std::vector<int32_t>& tokens) const {
  tokens.reserve(tokens.size() + text.size() / 4);
  Merger merger(*this, tokens);
  auto encode_words = [&](size_t at, size_t end) {
    std::string_view plain = text.substr(0, end);
    for (size_t behind; at < end; at = behind) {
      behind = word_end(plain, at, source, parts_.words);
      merger.encode(plain.substr(at, behind - at));
    }
  };
  // Calls between(begin, end) for what is between these tokens.
  auto each_part = [&](const std::vector<int32_t>& specials, size_t at, size_t end, auto between) {
    SpecialSearch search(parts_, specials, text.substr(0, end), at);
    while (at < end) {
      auto [place, bytes, token] = search.next(at);
      between(at, place);
      if (token >= 0) tokens.push_back(token);
      at = place + bytes;
    }
  };
  each_part(parts_.specials, 0, text.size(),
            [&](size_t begin, size_t end) { each_part(parts_.late, begin, end, encode_words); });
}

size_t Bpe::cut(std::string_view text, const Source& source) const {
  size_t longest = 1;
  std::vector<int32_t> specials = parts_.specials;
  specials.insert(specials.end(), parts_.late.begin(), parts_.late.end());
  for (int32_t token : specials) longest = std::max(longest, parts_.tokens[size_t(token)].size());
  // No special token may begin before the cut and end behind it, even behind the end of the text.
  size_t end = text.size() - std::min(text.size(), longest - 1);
  while ((end = last_word_end(text, end, source, parts_.words)) > 0) {
    auto begins = [&](int32_t token) {
      const std::string& bytes = parts_.tokens[size_t(token)];
      return text.find(bytes, end - std::min(end, bytes.size() - 1)) < end;
    };
    if (std::ranges::none_of(specials, begins)) return end;
    --end;
  }
  return 0;
}

}  // namespace triax::text
