#pragma once
#include "optim/optimizer.h"

namespace triax::optim {

struct SgdOptions {
  double momentum = 0, weight_decay = 0;
  SgdStep::Form form = SgdStep::Form::heavy_ball;
};

/// Gradient descent, with momentum (Sutskever et al. 2013) and L2 weight decay added to the
/// gradient, over flat slots.
class Sgd final : public Optimizer {
 public:
  Sgd(const std::vector<Slot>& slots, const SgdOptions& options = {});
  std::vector<SlotState> state() const override;

 private:
  void update(const StepDecision& decision) override;
  struct Entry {
    OptimizerSlot slot;
    Tensor velocity;  // undefined without momentum
  };
  std::vector<Entry> entries_;
  SgdOptions options_;
};

}  // namespace triax::optim
