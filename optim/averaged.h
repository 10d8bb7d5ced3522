#pragma once
#include "triax/optim/optimizer.h"

namespace triax::optim {

/// An optimizer with an exponential moving average of its weights, in their accumulator dtype:
/// state of kind `average`. After update t it is the mean of the weights after updates 1 to t,
/// where update i counts in proportion to decay^(t - i): the moving average with Adam's correction
/// of its early bias (Kingma and Ba 2015, section 3), so that the initial weights count for
/// nothing. A step that does not happen leaves it as it is. For low-precision weights the master
/// copies are averaged, if the optimizer has them as state of kind `master`.
class Averaged final : public Optimizer {
 public:
  /// `decay` in [0, 1).
  Averaged(const std::vector<Slot>& slots, std::unique_ptr<Optimizer> optimizer, double decay);
  std::vector<SlotState> state() const override;

 private:
  void update(const StepDecision& decision) override;
  void apply(const Tensor& decision) override;
  void follow(const Tensor& decision);

  std::unique_ptr<Optimizer> optimizer_;
  double decay_;
  struct Part {
    SlotState average;
    Tensor weight;  // or its master
  };
  std::vector<Part> parts_;
};

}  // namespace triax::optim
