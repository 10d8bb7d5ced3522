#pragma once
#include <memory>

#include "triax/autograd/node.h"

namespace triax::parallel {

/// The slices of split features, for bits that do not depend on the number of ranks: each rank has
/// equally many. A sum over all features is made of a term for each slice, in fixed point.
struct Slices {
  static constexpr int most = 256;
  int count = 1;  ///< over all ranks; 1: nothing is sliced, ranks sum in floating point
  /// The fixed point of gradients of activations: see set_seed().
  std::shared_ptr<FixedPoint> backward = std::make_shared<FixedPoint>();

  /// Returns the place for a rank's part of activations [rows, features], summed in `terms` slices:
  /// a slice's part is below 2^20 / count.
  Sums activations(const Shape& shape, Device device, int64_t terms) const;
  /// Returns the collector of the gradient of `y`, which split products use, summed in `terms`
  /// slices. Other ops throw Error 78 in backward.
  std::shared_ptr<autograd::Collector> gradient(const Tensor& y, int64_t terms) const;
  /// Sets the fixed point of a backward whose gradients are multiplied by `seed`: a slice's part is
  /// below 2^16 / count seeds. Call it before each backward.
  void set_seed(double seed);
  /// Throws Error 78, if there are slices, for `what`, which adds in floating point.
  void refuse(const char* what) const;
};

}  // namespace triax::parallel
