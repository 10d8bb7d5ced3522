#include <algorithm>
#include <queue>
#include <unordered_set>

#include "examples/text/tokenizer/bpe.h"
#include "examples/text/tokenizer/words.h"
#include "triax/core/check.h"

namespace triax::text {
namespace {

using WordCounts = std::unordered_map<std::string_view, int64_t>;
using Pair = std::pair<int32_t, int32_t>;
struct PairHash {
  size_t operator()(Pair p) const {
    return (uint64_t(p.first) << 32 | uint32_t(p.second)) * 0x9E3779B97F4A7C15u;
  }
};

/// Words as sequences of tokens, in which pairs are merged. How often a pair occurs is known at any
/// time: a merge changes the counts of its neighbours, in the words that have it.
class Learner {
 public:
  Learner(const WordCounts& words, const std::array<int32_t, 256>& byte_token) {
    for (auto& [word, count] : words) {
      words_.push_back({{}, count});
      for (char byte : word)
        words_.back().tokens.push_back(byte_token[static_cast<unsigned char>(byte)]);
    }
    for (size_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (size_t i = 0; i + 1 < word.tokens.size(); ++i)
        add({word.tokens[i], word.tokens[i + 1]}, word.count, w);
    }
    for (auto& [pair, found] : pairs_) queue_.push({found.count, pair});
  }

  /// Returns the pair that occurs most often, at least twice; {-1, -1} if there is none. Counts in
  /// the queue are those of the time when they were pushed: too large, never too small.
  Pair most_frequent() {
    while (!queue_.empty()) {
      Entry top = queue_.top();
      queue_.pop();
      auto found = pairs_.find(top.pair);
      int64_t now = found == pairs_.end() ? 0 : found->second.count;
      if (now < 2) continue;
      if (now == top.count) return top.pair;
      queue_.push({now, top.pair});
    }
    return {-1, -1};
  }

  void merge(Pair pair, int32_t token) {
    std::vector<size_t> in = std::move(pairs_.at(pair).words);
    std::sort(in.begin(), in.end());
    in.erase(std::unique(in.begin(), in.end()), in.end());
    for (size_t w : in) merge_in(w, pair, token);
    pairs_.erase(pair);
    for (Pair p : fresh_) queue_.push({pairs_.at(p).count, p});
    fresh_.clear();
  }

 private:
  struct Word {
    std::vector<int32_t> tokens;
    int64_t count;
  };
  struct Found {
    int64_t count = 0;
    std::vector<size_t> words = {};  // words that have it, or had it once; some more than once
  };
  struct Entry {
    int64_t count;
    Pair pair;
    bool operator<(const Entry& o) const {
      return count != o.count ? count < o.count : pair > o.pair;
    }
  };

  void add(Pair pair, int64_t count, size_t word) {
    Found& found = pairs_[pair];
    found.count += count;
    if (found.words.empty() || found.words.back() != word) found.words.push_back(word);
  }
  void remove(Pair pair, int64_t count) {
    if (auto found = pairs_.find(pair); found != pairs_.end()) found->second.count -= count;
  }

  void merge_in(size_t w, Pair pair, int32_t token) {
    auto& [tokens, count] = words_[w];
    size_t to = 0;
    for (size_t from = 0; from < tokens.size(); ++from, ++to) {
      bool here =
          tokens[from] == pair.first && from + 1 < tokens.size() && tokens[from + 1] == pair.second;
      tokens[to] = here ? token : tokens[from];
      if (!here) continue;
      if (to > 0) {
        remove({tokens[to - 1], pair.first}, count);
        add_fresh({tokens[to - 1], token}, count, w);
      }
      if (++from + 1 < tokens.size()) {
        remove({pair.second, tokens[from + 1]}, count);
        add_fresh({token, tokens[from + 1]}, count, w);
      }
    }
    tokens.resize(to);
  }
  void add_fresh(Pair pair, int64_t count, size_t w) {
    fresh_.insert(pair);
    add(pair, count, w);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, Found, PairHash> pairs_;
  std::unordered_set<Pair, PairHash> fresh_;  // pairs that a merge has made
  std::priority_queue<Entry> queue_;
};

/// Returns bytes in the order of GPT-2's vocabulary: those that print first.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  for (bool wanted : {true, false})
    for (int b = 0; b < 256; ++b)
      if (prints(b) == wanted) tokens.push_back(std::string(1, static_cast<char>(b)));
  return tokens;
}

constexpr std::string_view separator = "<|endoftext|>";

/// Counts the words of the text between separators.
WordCounts count_words(std::string_view text, const Source& source) {
  WordCounts words;
  Words gpt2;
  WordReader reader(gpt2, text, source);
  for (size_t at = 0, end; at < text.size(); at = end + separator.size()) {
    end = std::min(text.find(separator, at), text.size());
    reader.read({at, end}, [&](size_t from, size_t to) { ++words[text.substr(from, to - from)]; });
  }
  return words;
}

}  // namespace

Tokenizer learn_bpe(std::string_view text, int64_t size, const Source& source) {
  check(size >= least_bpe && size <= most_bpe, "bpe: {} tokens; expected {} to {}", size, least_bpe,
        most_bpe);
  auto words = count_words(text, source);
  BpeParts parts{.tokens = byte_tokens()};
  std::array<int32_t, 256> byte_token{};
  std::unordered_map<std::string, int32_t> numbers;
  for (int32_t i = 0; i < 256; ++i) {
    byte_token[static_cast<unsigned char>(parts.tokens[size_t(i)][0])] = i;
    numbers[parts.tokens[size_t(i)]] = i;
  }
  Learner learner(words, byte_token);
  while (std::ssize(parts.tokens) < size - 1) {
    Pair pair = learner.most_frequent();
    if (pair.first < 0) break;
    std::string both = parts.tokens[size_t(pair.first)] + parts.tokens[size_t(pair.second)];
    auto [at, is_new] = numbers.emplace(both, int32_t(std::ssize(parts.tokens)));
    if (is_new) parts.tokens.push_back(both);
    parts.merges.push_back(pair);
    learner.merge(pair, at->second);
  }
  parts.added = {{int32_t(std::ssize(parts.tokens)), std::string(separator)}};
  parts.tokens.emplace_back(separator);
  return Tokenizer(std::make_shared<Bpe>(std::move(parts)));
}

}  // namespace triax::text
