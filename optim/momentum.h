#pragma once
#include "triax/optim/optimizer.h"

namespace triax::optim {

/// The base of optimizers with at most one tensor of state; it holds that, and f32 master copies of
/// weights in a lower precision.
class Momentum : public Optimizer {
 public:
  std::vector<SlotState> state() const override;

 protected:
  /// `op` begins messages; `kind` names the state of the rule, which starts at 0; null: none.
  Momentum(const char* op, const std::vector<Slot>& slots, const char* kind,
           const UpdateRule& rule);

 private:
  struct Entry {
    OptimizerSlot slot;
    Rates rates;
    Tensors states = {};  // one, or none
  };
  void update(const StepDecision& decision) override;
  void apply(const Tensor& decision) override;
  void run(const UpdateStep& step);

  std::vector<Entry> entries_;
  const char* kind_;
  UpdateRule rule_;
};

}  // namespace triax::optim
