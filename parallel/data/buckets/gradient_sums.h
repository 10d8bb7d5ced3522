#pragma once
#include <functional>
#include <memory>

#include "triax/parallel/data/buckets/exact_gradients.h"
#include "triax/parallel/data/buckets/slice_store.h"

namespace triax::parallel {

/// The rule of a ZeRO stage for a full bucket.
struct ReductionRule {
  bool scatters;   ///< each rank gets its slice of the sum (reduce-scatter), not all of it
  bool each_pass;  ///< reduces after each backward pass, and the bytes go with the transfer
};
/// Returns the rule of a stage; throws Error 78 for a stage that does not exist.
ReductionRule reduction_rule(Zero stage);

/// Sums the gradients of buckets over the ranks of dp, while backward still runs.
class GradientSums {
 public:
  /// `m` has no buckets yet; both must outlive this.
  GradientSums(const HeldModel& m, const SliceStore& slices);
  /// Makes the gradients of a new bucket, which has its weights.
  void make(Bucket& b) const;
  /// Makes value and gradient of a parameter views of its bucket. `seen` is called when a backward
  /// pass has completed it.
  void hook(Bucket& b, size_t piece, std::function<void(const Bucket&, size_t piece)> seen);
  /// Prepares the first backward of a step: DataParallel::begin.
  void begin(int64_t micros, double scale);
  /// Reduces the remaining buckets, and waits for all sums. Throws Error 78 where a pass had to use
  /// a parameter.
  void finish();
  /// Returns the gradients summed exactly; null unless `bitwise`.
  const ExactGradients* exact() const { return exact_.get(); }

 private:
  void launch_in_order();
  void reduce(Bucket& b);
  void settle(Bucket& b);
  void zero_unwritten(Bucket& b);
  void check_passes() const;
  bool narrows(const Bucket& b) const {
    return m_.options.reduce_dtype == bf16 && b.over->size() > 1;
  }

  const HeldModel& m_;
  const SliceStore& slices_;
  ReductionRule rule_;
  std::unique_ptr<ExactGradients> exact_;
  int64_t due_ = 0;              // micro-batches of this step; 0: none has begun
  size_t launched_ = 0;          // buckets whose reduction has started, in order
  Bucket* in_flight_ = nullptr;  // one reduction at a time where buckets go with it
};

}  // namespace triax::parallel
