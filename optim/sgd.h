#pragma once
#include "optim/slot.h"

namespace triax::optim {

struct SgdOptions {
  double momentum = 0, weight_decay = 0;
  SgdStep::Form form = SgdStep::Form::heavy_ball;
};

/// Gradient descent, with momentum (Sutskever et al. 2013) and L2 weight decay added to the
/// gradient, over flat slots.
class Sgd {
 public:
  Sgd(const std::vector<Slot>& slots, const SgdOptions& options = {});

  /// One update with learning rate `lr`; gradients are multiplied by `grad_scale` (clipping).
  void step(double lr, double grad_scale = 1);

  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  std::vector<SlotState> state() const;

 private:
  struct Entry {
    OptimizerSlot slot;
    Tensor velocity;  // undefined without momentum
  };
  std::vector<Entry> entries_;
  SgdOptions options_;
  int64_t steps_ = 0;
};

}  // namespace triax::optim
