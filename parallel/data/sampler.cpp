#include "triax/parallel/data/sampler.h"

#include "triax/core/check.h"
#include "triax/core/random.h"

namespace triax::parallel {

Sampler::Sampler(int64_t dataset_size, uint64_t seed)
    : size_(dataset_size), key_(random::key(seed, "sampler")) {
  check_input(dataset_size >= 1, Exit::data, "sampler: {} samples; expected at least 1",
              dataset_size);
  while (2 * half_bits_ < 62 && (int64_t{1} << (2 * half_bits_)) < dataset_size) ++half_bits_;
}

uint64_t Sampler::permuted(uint64_t x, uint64_t epoch) const {
  constexpr uint64_t rounds = 8;  // small domains mix slowly; three would do for large ones
  uint64_t mask = (uint64_t{1} << half_bits_) - 1, left = x >> half_bits_, right = x & mask;
  for (uint64_t round = 0; round < rounds; ++round) {
    uint64_t f = random::philox(key_, epoch, round << 32 | right).x;
    uint64_t next = left ^ (f & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t Sampler::at(int64_t consumed) const {
  check(consumed >= 0, "sampler: position {}; expected at least 0", consumed);
  auto size = uint64_t(size_), epoch = uint64_t(consumed) / size, x = uint64_t(consumed) % size;
  do x = permuted(x, epoch);
  while (x >= size);
  return int64_t(x);
}

}  // namespace triax::parallel
