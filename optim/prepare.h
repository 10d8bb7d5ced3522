#pragma once
#include <algorithm>
#include <map>

#include "triax/autograd/ops.h"
#include "triax/core/check.h"
#include "triax/optim/slot.h"

namespace triax::optim {

/// True if a Slot's or OptimizerSlot's low-precision weights need an f32 master.
template <class Slot> bool needs_master(const Slot& s) {
  return s.weight.dtype() != s.grad.dtype();
}

/// Returns the parts of sorted ranges that lie in [begin, end), counted from `begin`.
inline std::vector<Range> within(const std::vector<Range>& all, int64_t begin, int64_t end) {
  std::vector<Range> cut;
  for (const Range& r : all) {
    Range part{std::max(r.begin, begin) - begin, std::min(r.end, end) - begin};
    if (part.begin < part.end) cut.push_back(part);
  }
  return cut;
}

/// Throws Error 70 unless an optimizer can update the slot.
inline void check_slot(const char* op, const Slot& s) {
  check(s.weight.defined() && s.grad.defined() && s.weight.rank() == 1 &&
            s.grad.shape() == s.weight.shape() && s.weight.is_contiguous() &&
            s.grad.is_contiguous() && s.grad.dtype() == accumulator(s.weight.dtype()),
        "{}: slot with weight {} and gradient {}; expected flat, contiguous ones of equal length, "
        "the gradient in the accumulator dtype",
        op, s.weight, s.grad);
  int64_t end = 0;
  for (auto& r : s.decayed) {
    check(r.begin >= end && r.end >= r.begin && r.end <= s.weight.numel(),
          "{}: decayed range [{}, {}) of a slot of {}; expected sorted ranges inside it", op,
          r.begin, r.end, s.weight.numel());
    end = r.end;
  }
}

/// Updates slots by one rule and step, each with rates of its own.
class RatedUpdate {
 public:
  RatedUpdate(const UpdateRule& rule, UpdateStep step) : rule_(rule), step_(std::move(step)) {}

  void operator()(const OptimizerSlot& slot, const Tensors& states, const Rates& rates) {
    UpdateRule rule = rule_;
    if (rates.weight_decay)
      std::visit([&](auto& r) { r.weight_decay = *rates.weight_decay; }, rule);
    UpdateStep step = step_;
    step.lr *= rates.lr;
    if (rates.lr != 1 && step.decision.defined()) step.decision = decision(rates.lr);
    backend(slot.weight).update(slot, states, rule, step);
  }

 private:
  /// Returns the decision with `factor` times its learning rate.
  const Tensor& decision(double factor) {
    Tensor& scaled = plans_[factor];
    if (scaled.defined()) return scaled;
    scaled = clone(step_.decision);
    copy_(scaled.narrow(0, 0, 1), step_.decision.narrow(0, 0, 1) * factor);
    return scaled;
  }
  UpdateRule rule_;
  UpdateStep step_;
  std::map<double, Tensor> plans_;  // by factor
};

}  // namespace triax::optim
