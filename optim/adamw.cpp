#include "optim/adamw.h"

#include "optim/prepare.h"

namespace triax::optim {

AdamW::AdamW(const std::vector<Slot>& slots, const AdamWOptions& options) : options_(options) {
  auto in_unit = [](double x) { return x >= 0 && x < 1; };
  check(in_unit(options.beta1) && in_unit(options.beta2) && options.eps > 0,
        "adamw: beta1 {}, beta2 {}, eps {}; expected betas in [0, 1) and eps above 0",
        options.beta1, options.beta2, options.eps);
  memory::Scope scope(memory::optimizer);
  for (auto& s : slots) {
    OptimizerSlot slot = prepare("adamw", s);
    DType sums = accumulator(s.weight.dtype());
    Device device = s.weight.device();
    entries_.push_back({std::move(slot), zeros(s.weight.shape(), sums, device),
                        zeros(s.weight.shape(), sums, device)});
  }
}

void AdamW::step(double lr, double grad_scale) {
  AdamWStep o{lr,         options_.beta1, options_.beta2, options_.eps, options_.weight_decay,
              grad_scale, ++steps_};
  for (auto& e : entries_) backend(e.m).adamw(e.slot, e.m, e.v, o);
}

std::vector<SlotState> AdamW::state() const {
  std::vector<SlotState> all;
  for (size_t i = 0; i < entries_.size(); ++i) {
    all.push_back({i, "m", entries_[i].m});
    all.push_back({i, "v", entries_[i].v});
    if (entries_[i].slot.master.defined()) all.push_back({i, "master", entries_[i].slot.master});
  }
  return all;
}

}  // namespace triax::optim
