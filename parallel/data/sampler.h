#pragma once
#include <cstdint>

namespace triax::parallel {

/// The order of samples as a pure function of (seed, samples consumed): the same on every mesh, for
/// every micro-batch size, and after a resume. Each epoch is a new permutation, computed place by
/// place: a Feistel network (Luby and Rackoff 1988) on the next power of four, whose values outside
/// the data set are walked on (Black and Rogaway 2002).
class Sampler {
 public:
  /// `size`: samples in the data set, at least 1.
  Sampler(int64_t size, uint64_t seed);
  /// The sample at position `consumed` (from 0) since the start of training.
  int64_t at(int64_t consumed) const;

 private:
  int64_t permuted(int64_t index, uint64_t epoch) const;
  int64_t size_;
  uint64_t key_;
  int half_bits_ = 1;
};

}  // namespace triax::parallel
