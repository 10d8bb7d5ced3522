#include "examples/text/tokens.h"

#include <cmath>

#include "triax/core/io/checksum.h"

namespace triax::text {
namespace {

/// Calls `visit(tokens)` for tokens [begin, end), in blocks.
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
  std::vector<int64_t> counts;
  auto total = std::min<int64_t>(tokens.size(), int64_t{1} << 26);
  each_block(tokens, 0, total, [&](auto part) {
    counts.resize(std::max(counts.size(), 1 + size_t(*std::ranges::max_element(part))));
    for (int32_t token : part) ++counts[size_t(token)];
  });
  double entropy = 0;
  for (int64_t count : counts) {
    double p = double(count) / double(total);
    if (count > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace triax::text
