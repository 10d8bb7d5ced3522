#pragma once
#include "triax/optim/adamw.h"

namespace triax::optim {

struct MuonOptions {
  double momentum = 0.95, weight_decay = 0.1;
  int iterations = 5;       ///< of Newton-Schulz
  AdamWOptions adamw = {};  ///< for everything but hidden matrices
};

/// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024): Nesterov
/// momentum, replaced by roughly the nearest orthogonal matrix by Newton-Schulz iterations;
/// decoupled weight decay. AdamW updates embeddings, heads, norms and biases. An update is
/// multiplied by 0.2 sqrt(max(rows, columns)), which gives it the size of AdamW's, so that both
/// take one learning rate and weight decay (Liu et al., "Muon is scalable for LLM training", 2025,
/// section 2.2). A matrix has one tensor of state, where AdamW has two.
class Muon final : public Optimizer {
 public:
  /// A matrix that ranks hold parts of is gathered for each update, and each orthogonalizes all of
  /// it, as in that paper's section 2.3. Throws Error 70 for a part that cannot be gathered.
  Muon(const std::vector<Slot>& slots, const MuonOptions& options = {});
  std::vector<SlotState> state() const override;

 private:
  struct Entry {
    size_t slot;
    Matrix matrix;
    OptimizerSlot part;
    Rates rates;
    Tensor velocity;
  };
  void update(const StepDecision& decision) override;
  void apply(const Tensor& decision) override;
  void add(size_t index, const Slot& s, const Matrix& matrix);

  MuonOptions options_;
  std::vector<Entry> entries_;
  struct Place {
    size_t slot;
    int64_t begin;
  };
  std::vector<Place> places_;  // of the slots of rest_
  std::unique_ptr<AdamW> rest_;
  Device device_ = cpu;
};

/// Returns about U V^T of x = U S V^T [rows, columns]: singular values end up in 0.7 to 1.2.
Tensor orthogonalized(const Tensor& x, int iterations);

}  // namespace triax::optim
