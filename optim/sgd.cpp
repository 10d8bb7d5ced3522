#include "optim/sgd.h"

#include "optim/prepare.h"

namespace triax::optim {

Sgd::Sgd(const std::vector<Slot>& slots, const SgdOptions& options) : options_(options) {
  check(options.momentum >= 0 && options.momentum < 1, "sgd: momentum {}; expected 0 <= it < 1",
        options.momentum);
  memory::Scope scope(memory::optimizer);
  for (auto& s : slots) {
    check_slot("sgd", s);
    Entry e{{s.weight, s.grad, {}, s.decayed}, {}};
    if (needs_master(s)) e.slot.master = s.weight.to(s.grad.dtype());
    if (options.momentum > 0) e.velocity = zeros_like(s.grad);
    entries_.push_back(std::move(e));
  }
}

void Sgd::update(const StepDecision& d) {
  SgdStep o{d.lr, options_.momentum, options_.weight_decay, d.grad_scale, options_.form, steps()};
  for (auto& e : entries_) backend(e.slot.weight).sgd(e.slot, e.velocity, o);
}

std::vector<SlotState> Sgd::state() const {
  std::vector<SlotState> all;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].velocity.defined()) all.push_back({i, "velocity", entries_[i].velocity});
    if (entries_[i].slot.master.defined()) all.push_back({i, "master", entries_[i].slot.master});
  }
  return all;
}

}  // namespace triax::optim
