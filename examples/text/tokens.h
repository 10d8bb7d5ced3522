#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace triax::text {

/// An encoded text, wherever it is. Read from many threads at once.
class Tokens {
 public:
  virtual ~Tokens() = default;
  virtual int64_t size() const = 0;
  /// Reads tokens [begin, begin + to.size()).
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

/// The tokens [begin, end).
struct TokenRange {
  int64_t begin, end;
};
/// Calls f(place) for every place in `range` that has `token`, in ascending order.
void each_place(const Tokens& tokens, const TokenRange& range, int32_t token,
                const std::function<void(int64_t place)>& f);
/// Returns the CRC-32C of tokens [begin, end) as i32: it does not depend on where they are.
uint32_t checksum(const Tokens& tokens, int64_t begin, int64_t end);
/// Returns the entropy of the tokens' frequencies in nats, of all tokens or the first 2^26.
double unigram_entropy(const Tokens& tokens);

}  // namespace triax::text
