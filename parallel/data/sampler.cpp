#include "parallel/data/sampler.h"

#include <utility>

#include "core/check.h"
#include "core/random.h"

namespace triax::parallel {

Sampler::Sampler(int64_t size, uint64_t seed) : size_(size), key_(random::key(seed, "sampler")) {
  check(size >= 1, "sampler: {} samples; expected at least 1", size);
  while ((int64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
}

int64_t Sampler::at(int64_t consumed) const {
  check(consumed >= 0, "sampler: position {}; expected 0 or more", consumed);
  auto epoch = uint64_t(consumed / size_);
  // The domain is below four times the size, so this ends after a few rounds on average.
  int64_t index = consumed % size_;
  do index = permuted(index, epoch);
  while (index >= size_);
  return index;
}

int64_t Sampler::permuted(int64_t index, uint64_t epoch) const {
  uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = uint64_t(index) >> half_bits_, right = uint64_t(index) & mask;
  for (uint64_t round = 0; round < 4; ++round) {
    uint64_t mixed = random::philox(key_, epoch * 4 + round, right).x & mask;
    left = std::exchange(right, left ^ mixed);
  }
  return int64_t(left << half_bits_ | right);
}

}  // namespace triax::parallel
