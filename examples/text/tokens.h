#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace triax::text {

/// An encoded text, wherever it is. Read from many threads at once.
class Tokens {
 public:
  virtual ~Tokens() = default;
  virtual int64_t size() const = 0;
  /// Tokens [begin, begin + to.size()).
  virtual void read(int64_t begin, std::span<int32_t> to) const = 0;
};
using TokensPtr = std::shared_ptr<const Tokens>;

class TokensInMemory : public Tokens {
 public:
  explicit TokensInMemory(std::vector<int32_t> all) : all_(std::move(all)) {}
  int64_t size() const override { return std::ssize(all_); }
  void read(int64_t begin, std::span<int32_t> to) const override;

 private:
  std::vector<int32_t> all_;
};

/// Zeros, in place of tokens that are not here.
class Zeros : public Tokens {
 public:
  explicit Zeros(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  void read(int64_t, std::span<int32_t> to) const override { std::fill(to.begin(), to.end(), 0); }

 private:
  int64_t size_;
};

/// Tokens [begin, end).
struct TokenRange {
  int64_t begin, end;
};
/// f(place) for every place in `range` that has `token`, in ascending order.
void each_place(const Tokens& tokens, const TokenRange& range, int32_t token,
                const std::function<void(int64_t place)>& f);
/// CRC-32C of tokens [begin, end) as i32: the same wherever they are.
uint32_t checksum(const Tokens& tokens, int64_t begin, int64_t end);
/// Entropy of the tokens' frequencies in nats, of all tokens or the first 2^26.
double unigram_entropy(const Tokens& tokens);
/// How much more a token of `held_out` costs than one of `training`, in nats, if the frequencies of
/// `training` are the model: near 0 for two parts of one text. Of both at most the first 2^26.
double unigram_excess(const Tokens& training, const Tokens& held_out);

/// Tokens [begin, end) of others, which outlive it.
class TokensPart : public Tokens {
 public:
  TokensPart(const Tokens& all, const TokenRange& range) : all_(all), range_(range) {}
  int64_t size() const override { return range_.end - range_.begin; }
  void read(int64_t begin, std::span<int32_t> to) const override {
    all_.read(range_.begin + begin, to);
  }

 private:
  const Tokens& all_;
  TokenRange range_;
};

}  // namespace triax::text
