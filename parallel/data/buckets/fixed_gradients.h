#pragma once
#include <map>
#include <memory>

#include "nn/parameter.h"
#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// Gradients that are summed in fixed point (core/numbers/fixed_point.h), each sample's part by
/// itself: the bits do not depend on the order of the sum.
class FixedGradients {
 public:
  /// Takes the `samples` of a pass and the number of `replicas`, which are ranks.
  FixedGradients(int64_t samples, int64_t replicas) : samples_(samples), replicas_(replicas) {
    rounding_[1] = std::make_shared<FixedPoint>();
  }
  /// Returns how the gradient of `p` is summed; `tp` is null without tensor parallelism.
  autograd::FixedSums of(const nn::Parameter& p, const Communicator* tp);
  /// Prepares a step of `micros` passes of each replica, with gradients that are multiplied by
  /// `scale`, a power of two.
  void begin(int64_t micros, double scale);
  /// Throws Error 78, after a step, if `p` was used so often that the sums may have been rounded.
  void check_uses(const nn::Parameter& p, int64_t micros) const;
  /// Returns the most that a sample may add to a gradient, without the scale; more is NaN.
  double largest_part() const { return rounding_.at(1)->largest / (rounding_.at(1)->unit / unit); }

 private:
  static constexpr double unit = 0x1p-40;  // f32's own rounding of a gradient of 2^-16
  static constexpr int64_t most_uses = 8;  // uses of a weight in one pass
  int64_t samples_, replicas_;
  std::map<int64_t, std::shared_ptr<FixedPoint>> rounding_;  // by the number of chains of a sample
};

}  // namespace triax::parallel
