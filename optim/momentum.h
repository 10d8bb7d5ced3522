#pragma once
#include "optim/optimizer.h"

namespace triax::optim {

/// The base of optimizers with at most one tensor of state; it holds that, and f32 master copies of
/// weights in a lower precision.
class Momentum : public Optimizer {
 public:
  std::vector<SlotState> state() const override;

 protected:
  struct Entry {
    OptimizerSlot slot;
    Rates rates;
    Tensor momentum = {};  // undefined: none
  };
  /// `op` begins messages; `kind` names the state, which starts at 0; null: none.
  Momentum(const char* op, const std::vector<Slot>& slots, const char* kind);
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  const char* kind_;
};

}  // namespace triax::optim
