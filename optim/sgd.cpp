#include "optim/sgd.h"

#include "core/check.h"
#include "optim/prepare.h"

namespace triax::optim {

Sgd::Sgd(const std::vector<Slot>& slots, const SgdOptions& options)
    : Momentum("sgd", slots, options.momentum > 0 ? "velocity" : nullptr), options_(options) {
  check(options.momentum >= 0 && options.momentum < 1, "sgd: momentum {}; expected 0 <= it < 1",
        options.momentum);
}

void Sgd::update(const StepDecision& d) { run({.lr = d.lr, .grad_scale = d.grad_scale}); }
void Sgd::apply(const Tensor& decision) { run({.plan = decision}); }

void Sgd::run(SgdStep o) {
  o.momentum = options_.momentum, o.weight_decay = options_.weight_decay;
  o.form = options_.form, o.step = steps();
  PerSlot<SgdStep> steps(o);
  for (auto& e : entries()) backend(e.slot.weight).sgd(e.slot, e.momentum, steps.at(e.rates));
}

}  // namespace triax::optim
