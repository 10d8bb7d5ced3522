#pragma once
#include <cstdint>

namespace triax::parallel {

/// The order of samples as a pure function of (seed, samples consumed since the start of training):
/// it depends on no mesh, micro-batch or accumulation, and a resumed run needs one number.
///
/// Each epoch is a new pseudo-random permutation: a Feistel network (Luby and Rackoff 1988) with
/// Philox as its round function, on the smallest domain of an even number of bits that holds the
/// dataset; values outside are mapped again until they fall inside (cycle walking, Black and
/// Rogaway 2002). Nothing is stored.
class Sampler {
 public:
  /// Throws Error 65 unless `dataset_size` is at least 1.
  Sampler(int64_t dataset_size, uint64_t seed);

  /// Returns the sample, in [0, dataset_size), at position `consumed` >= 0. Every sample occurs
  /// once in each epoch: positions [e * dataset_size, (e + 1) * dataset_size).
  int64_t at(int64_t consumed) const;

 private:
  uint64_t permuted(uint64_t x, uint64_t epoch) const;
  int64_t size_;
  uint64_t key_;
  int half_bits_ = 1;
};

}  // namespace triax::parallel
