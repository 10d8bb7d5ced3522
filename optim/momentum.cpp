#include "optim/momentum.h"

#include "optim/prepare.h"

namespace triax::optim {

Momentum::Momentum(const char* op, const std::vector<Slot>& slots, const char* kind) : kind_(kind) {
  memory::Scope scope(memory::optimizer);
  for (auto& s : slots) {
    check_slot(op, s);
    Entry e{{s.weight, s.grad, {}, s.decayed}, s.rates};
    if (needs_master(s)) e.slot.master = s.weight.to(s.grad.dtype());
    if (kind) e.momentum = zeros_like(s.grad);
    entries_.push_back(std::move(e));
  }
}

std::vector<SlotState> Momentum::state() const {
  std::vector<SlotState> all;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].momentum.defined()) all.push_back({i, kind_, entries_[i].momentum});
    if (entries_[i].slot.master.defined()) all.push_back({i, "master", entries_[i].slot.master});
  }
  return all;
}

}  // namespace triax::optim
