#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "triax/core/numbers/update.h"
#include "triax/core/profile.h"
#include "triax/optim/slot.h"

namespace triax::optim {

/// The interface of an optimizer: one update over flat slots, whose factors a device decides, and
/// state by name for checkpoints. An implementation overrides `update`, or `apply` for kernels that
/// read the decision on the device, so that the host need not wait.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Makes one update as `decision` says, a StepDecision on the weights' device
  /// (core/numbers/update.h). It counts as a step whether it happens or not: see set_steps().
  void step(const Tensor& decision) {
    ProfileRange range("optimizer", Activity::optimizer);
    ++steps_;
    apply(decision);
  }
  /// Makes one update with learning rate `lr`; gradients are multiplied by `grad_scale` (clipping,
  /// loss scale).
  void step(double lr, double grad_scale = 1) {
    ++steps_;
    update({.lr = lr, .step = double(steps_), .grad_scale = grad_scale, .happens = 1, .halted = 0});
  }

  int64_t steps() const { return steps_; }
  /// Sets the number of steps, for checkpoints and for steps that were skipped.
  void set_steps(int64_t steps) { steps_ = steps; }
  /// Returns its state for checkpoints: copy into these in place. They must be held while used, and
  /// not used after the optimizer is gone.
  virtual std::vector<SlotState> state() const = 0;

 private:
  /// Updates all slots with the host's numbers. `happens` is not 0.
  virtual void update(const StepDecision& decision) = 0;
  /// Updates all slots with numbers on the device. By default the host waits for them.
  virtual void apply(const Tensor& decision) {
    auto v = decision.to_host<double>();
    if (v[3] != 0) update({v[0], v[1], v[2], v[3], v[4]});
  }
  int64_t steps_ = 0;
};

/// Makes the optimizer of one rank's slots.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const std::vector<Slot>& slots)>;

}  // namespace triax::optim
