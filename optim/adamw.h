#pragma once
#include <memory>
#include <optional>

#include "triax/optim/offload.h"
#include "triax/optim/optimizer.h"

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
/// chunks of the next step, continue after step() has returned.
class AdamW final : public Optimizer {
 public:
  AdamW(const std::vector<Slot>& slots, const AdamWOptions& options);
  ~AdamW() override;
  std::vector<SlotState> state() const override;

 private:
  struct Chunk {
    size_t slot;
    int64_t begin;  // in the slot
    Offload::To to;
    OptimizerSlot part;
    Rates rates;
    Tensor m, v;
    std::optional<size_t> record = {};  // in the window, if it is in a file
  };
  std::shared_ptr<void> hold(const Chunk& c) const;
  void cut(size_t index, const Slot& s);
  void make_window();
  void make_state(Chunk& c);
  /// Like apply(), throws Error 74, on a full disk 73, when state cannot be read or written; then
  /// weights and state are lost.
  void update(const StepDecision& decision) override;
  void apply(const Tensor& decision) override;
  void run(UpdateStep o);

  AdamWOptions options_;
  std::vector<Chunk> chunks_;
  std::unique_ptr<Window> window_;  // last: it waits for the chunks it moves
};

}  // namespace triax::optim
