#include "triax/optim/momentum.h"

#include "triax/core/check.h"
#include "triax/optim/lion.h"
#include "triax/optim/prepare.h"
#include "triax/optim/sgd.h"

namespace triax::optim {

Momentum::Momentum(const char* op, const std::vector<Slot>& slots, const char* kind,
                   const UpdateRule& rule)
    : kind_(kind), rule_(rule) {
  memory::Scope scope(memory::optimizer);
  for (auto& s : slots) {
    check_slot(op, s);
    Entry e{{s.weight, s.grad, {}, s.decayed}, s.rates};
    if (needs_master(s)) e.slot.master = s.weight.to(s.grad.dtype());
    if (kind) e.states = {zeros_like(s.grad)};
    entries_.push_back(std::move(e));
  }
}

void Momentum::update(const StepDecision& d) {
  run({.lr = d.lr, .grad_scale = d.grad_scale, .step = steps()});
}
void Momentum::apply(const Tensor& decision) { run({.decision = decision}); }

void Momentum::run(const UpdateStep& step) {
  RatedUpdate update(rule_, step);
  for (auto& e : entries_) update(e.slot, e.states, e.rates);
}

std::vector<SlotState> Momentum::state() const {
  std::vector<SlotState> all;
  for (size_t i = 0; i < entries_.size(); ++i) {
    for (const Tensor& state : entries_[i].states) all.push_back({i, kind_, state});
    if (entries_[i].slot.master.defined()) all.push_back({i, "master", entries_[i].slot.master});
  }
  return all;
}

Sgd::Sgd(const std::vector<Slot>& slots, const SgdOptions& options)
    : Momentum("sgd", slots, options.momentum > 0 ? "velocity" : nullptr, options) {
  check(options.momentum >= 0 && options.momentum < 1, "sgd: momentum {}; expected 0 <= it < 1",
        options.momentum);
}

Lion::Lion(const std::vector<Slot>& slots, const LionOptions& options)
    : Momentum("lion", slots, "m", options) {
  auto in_unit = [](double x) { return x >= 0 && x < 1; };
  check(in_unit(options.beta1) && in_unit(options.beta2),
        "lion: beta1 {}, beta2 {}; expected betas in [0, 1)", options.beta1, options.beta2);
}

}  // namespace triax::optim
