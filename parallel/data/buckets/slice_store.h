#pragma once
#include <memory>
#include <vector>

#include "triax/optim/window.h"
#include "triax/parallel/data/buckets/held_model.h"

namespace triax::parallel {

/// Stores this rank's slices of weights and gradients between uses: on the device, on the host, or
/// in files. Weights and gradients of a bucket are neighbours in a file, because the optimizer's
/// update uses both.
class SliceStore {
 public:
  explicit SliceStore(const HeldModel& m) : m_(m) {}
  /// Decides where each bucket's slice lies, before any is made. Throws Error 78 for weights that
  /// are offloaded without ZeRO-3.
  void place(std::vector<BucketLayout>& layouts, const std::vector<nn::Layers>& chunks);
  /// Returns a flat tensor for `b`'s slice; in files it is the record's.
  Tensor make(const Bucket& b, DType dtype, size_t record) const;
  /// Returns the slice for a gradient whose sums are in fixed point.
  Tensor make_rounded(const Bucket& b) const;
  void write_weight(const Bucket& b, const Tensor& values) const;
  /// Adds a reduced gradient to the sums of earlier micro-batches.
  void add_arrived(Bucket& b) const;
  /// Rounds the fixed-point sums, once, to the gradient.
  void round_sums(Bucket& b) const;

 private:
  const HeldModel& m_;
  std::unique_ptr<optim::Window> window_;  // the slices in files
};

}  // namespace triax::parallel
