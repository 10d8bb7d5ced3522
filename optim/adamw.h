#pragma once
#include "optim/slot.h"

namespace triax::optim {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2), one fused pass over
/// flat slots. Low-precision weights get an f32 master copy.
class AdamW {
 public:
  AdamW(const std::vector<Slot>& slots, const AdamWOptions& options);

  /// One update with learning rate `lr`; gradients are multiplied by `grad_scale` (clipping).
  void step(double lr, double grad_scale = 1);

  int64_t steps() const { return steps_; }
  /// For checkpoints: set the step count, and copy into state() in place.
  void set_steps(int64_t steps) { steps_ = steps; }
  std::vector<SlotState> state() const;

 private:
  struct Entry {
    OptimizerSlot slot;
    Tensor m, v;
  };
  std::vector<Entry> entries_;
  AdamWOptions options_;
  int64_t steps_ = 0;
};

}  // namespace triax::optim
