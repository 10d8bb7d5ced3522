#include "examples/text/tokens.h"

#include <algorithm>
#include <cmath>

#include "core/checksum.h"

namespace triax::text {
namespace {

/// `visit(tokens)` for tokens [begin, end), in blocks.
template <class Visit>
void each_block(const Tokens& tokens, int64_t begin, int64_t end, const Visit& visit) {
  std::vector<int32_t> block(1 << 16);
  for (int64_t at = begin; at < end;) {
    auto count = std::min(end - at, std::ssize(block));
    std::span<int32_t> part(block.data(), size_t(count));
    tokens.read(at, part);
    visit(part);
    at += count;
  }
}

/// How often each token occurs, and their sum; of all tokens or the first 2^26.
std::pair<std::vector<int64_t>, int64_t> counts_of(const Tokens& tokens) {
  std::vector<int64_t> counts;
  auto total = std::min<int64_t>(tokens.size(), int64_t{1} << 26);
  each_block(tokens, 0, total, [&](auto part) {
    counts.resize(std::max(counts.size(), 1 + size_t(*std::ranges::max_element(part))));
    for (int32_t token : part) ++counts[size_t(token)];
  });
  return {counts, total};
}

}  // namespace

void TokensInMemory::read(int64_t begin, std::span<int32_t> to) const {
  std::copy_n(all_.begin() + begin, to.size(), to.begin());
}

void each_place(const Tokens& tokens, const TokenRange& range, int32_t token,
                const std::function<void(int64_t place)>& f) {
  int64_t at = range.begin;
  each_block(tokens, range.begin, range.end, [&](auto part) {
    for (size_t i = 0; i < part.size(); ++i)
      if (part[i] == token) f(at + int64_t(i));
    at += std::ssize(part);
  });
}

uint32_t checksum(const Tokens& tokens, int64_t begin, int64_t end) {
  uint32_t crc = 0;
  each_block(tokens, begin, end,
             [&](auto part) { crc = crc32c(part.data(), part.size_bytes(), crc); });
  return crc;
}

double unigram_entropy(const Tokens& tokens) {
  auto [counts, total] = counts_of(tokens);
  double entropy = 0;
  for (int64_t count : counts) {
    double p = double(count) / double(total);
    if (count > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

double unigram_excess(const Tokens& training, const Tokens& held_out) {
  auto [counts, total] = counts_of(training);
  auto [others, other_total] = counts_of(held_out);
  counts.resize(std::max(counts.size(), others.size()));
  others.resize(counts.size());
  // Each count is one larger, so that none is 0. Of a token of `training` itself, the count is that
  // of the others.
  double all = double(total) + double(counts.size()), own = 0, other = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) own += double(counts[i]) * std::log((all - 1) / double(counts[i]));
    other += double(others[i]) * std::log(all / double(counts[i] + 1));
  }
  return other / double(other_total) - own / double(total);
}

}  // namespace triax::text
