#pragma once
#include <memory>
#include <vector>

#include "triax/nn/parameter.h"
#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// Gradients that are summed in fixed point (core/numbers/fixed_point.h), each sample's part by
/// itself: the bits do not depend on the order of the sum.
class ExactGradients {
 public:
  /// Takes the `samples` of a pass, the number of `replicas`, which are ranks with other samples or
  /// rows, and that of the equal parts of a sample's rows here that are summed each by itself.
  ExactGradients(int64_t samples, int64_t replicas, int64_t row_parts = 1)
      : samples_(samples), replicas_(replicas), row_parts_(row_parts) {}
  /// Returns the collector of p's gradient in `view`, which is f64; `tp` is null without tensor
  /// parallelism.
  std::shared_ptr<autograd::GradientView> collector(const nn::Parameter& p, const Tensor& view,
                                                    const Communicator* tp);
  /// Prepares a step of `micros` passes of each replica, with gradients that are multiplied by
  /// `scale`, a power of two.
  void begin(int64_t micros, double scale);
  /// Throws Error 78, after such a step, if a parameter was used so often that the sums may have
  /// been rounded.
  void check_uses(int64_t micros) const;
  /// Returns the most that a sample may add to a gradient, without the scale; more is NaN.
  double largest_part() const { return largest_part_; }

 private:
  class View;
  static constexpr double unit = 0x1p-40;  // f32's own rounding of a gradient of 2^-16
  static constexpr int64_t most_uses = 8;  // uses of a weight in one pass
  int64_t samples_, replicas_, row_parts_;
  double largest_part_ = 0;
  std::vector<std::shared_ptr<View>> views_;
};

}  // namespace triax::parallel
