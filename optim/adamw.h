#pragma once
#include <memory>

#include "optim/offload.h"
#include "optim/slot.h"

namespace triax::optim {

class Window;

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  Offload offload = {};
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2), one fused pass over
/// flat slots. Low-precision weights get an f32 master copy.
///
/// The results have the same bits wherever the state is. Offloaded state is updated on the host's
/// cores, chunk by chunk; gradients go there, and weights back, by copies where they are elsewhere.
/// No update runs during backward: clipping and the decision to skip need all gradients first. With
/// a file, chunks are read ahead and written behind; the last writes, and the reads of the first
/// chunks of the next step, go on after step() has returned.
class AdamW {
 public:
  AdamW(const std::vector<Slot>& slots, const AdamWOptions& options);
  ~AdamW();
  AdamW(AdamW&&) noexcept;

  /// One update with learning rate `lr`; gradients are multiplied by `grad_scale` (clipping).
  /// Throws Error 74, on a full disk 73, when state cannot be read or written; then weights and
  /// state are lost.
  void step(double lr, double grad_scale = 1);
  /// The same as `plan` says, a StepDecision on the weights' device, which the host need not know
  /// (core/update.h). Counts as a step, whether it happens or not: see set_steps().
  void step(const Tensor& plan);

  int64_t steps() const { return steps_; }
  /// For checkpoints: set the step count, and copy into state() in place. The tensors must be held
  /// while used, and not after this is gone.
  void set_steps(int64_t steps) { steps_ = steps; }
  std::vector<SlotState> state() const;

 private:
  struct Chunk {
    size_t slot;
    int64_t begin;  // in the slot
    OptimizerSlot part;
    Tensor m, v;
  };
  void cut(size_t index, const Slot& s);
  void make_window();
  void make_state(size_t i);
  void run(AdamWStep o);
  void update(const Chunk& c, const AdamWStep& o);

  AdamWOptions options_;
  std::vector<Chunk> chunks_;
  int64_t steps_ = 0;
  std::unique_ptr<Window> window_;  // last: it waits for the chunks it moves
};

}  // namespace triax::optim
