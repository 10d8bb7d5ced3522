#pragma once
#include <memory>
#include <span>
#include <vector>

#include "parallel/data/buckets.h"
#include "parallel/data/options.h"
#include "parallel/mesh.h"

namespace triax::parallel {

/// A model's weights and gradients as this rank holds them, and the ranks that have the rest.
struct HeldModel {
  Communicator& dp;
  /// Ranks that sum gradients beside dp: null for none. All must agree whether a step is skipped.
  Communicator *tp = nullptr, *ends = nullptr, *all = nullptr;
  DataParallelOptions options;
  std::vector<nn::Parameter*> declared = {};          ///< the whole model's
  std::vector<std::unique_ptr<Bucket>> buckets = {};  ///< those trained come first
  size_t trained_buckets = 0;

  std::span<const std::unique_ptr<Bucket>> trained() const {
    return std::span(buckets).first(trained_buckets);
  }
  /// The bucket that has `p`; null where this rank holds none of it.
  Bucket* holder(const nn::Parameter* p) const;
  /// True if weights of such parameters are cut over the ranks of dp.
  bool cuts(bool frozen) const {
    return options.zero >= (frozen ? Zero::parameters : Zero::optimizer);
  }
  /// True for one rank of all that hold the same of `p`: it saves it and counts it in the norm.
  bool owns(const nn::Parameter& p) const;
  /// The dtype that gradients are summed in.
  DType sums() const { return options.bitwise ? f64 : accumulator(options.dtype); }
};

}  // namespace triax::parallel
