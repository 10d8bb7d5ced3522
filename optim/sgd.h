#pragma once
#include "optim/momentum.h"

namespace triax::optim {

struct SgdOptions {
  double momentum = 0, weight_decay = 0;
  SgdStep::Form form = SgdStep::Form::heavy_ball;
};

/// Gradient descent, with momentum (Sutskever et al. 2013) and L2 weight decay added to the
/// gradient, over flat slots.
class Sgd final : public Momentum {
 public:
  Sgd(const std::vector<Slot>& slots, const SgdOptions& options = {});

 private:
  void update(const StepDecision& decision) override;
  void apply(const Tensor& decision) override;
  void run(SgdStep o);
  SgdOptions options_;
};

}  // namespace triax::optim
