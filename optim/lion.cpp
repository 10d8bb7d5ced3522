#include "optim/lion.h"

#include "core/check.h"
#include "optim/prepare.h"

namespace triax::optim {

Lion::Lion(const std::vector<Slot>& slots, const LionOptions& options)
    : Momentum("lion", slots, "m"), options_(options) {
  auto in_unit = [](double x) { return x >= 0 && x < 1; };
  check(in_unit(options.beta1) && in_unit(options.beta2),
        "lion: beta1 {}, beta2 {}; expected betas in [0, 1)", options.beta1, options.beta2);
}

void Lion::update(const StepDecision& d) { run({.lr = d.lr, .grad_scale = d.grad_scale}); }
void Lion::apply(const Tensor& decision) { run({.plan = decision}); }

void Lion::run(LionStep o) {
  o.beta1 = options_.beta1, o.beta2 = options_.beta2, o.weight_decay = options_.weight_decay;
  PerSlot<LionStep> steps(o);
  for (auto& e : entries()) backend(e.slot.weight).lion(e.slot, e.momentum, steps.at(e.rates));
}

}  // namespace triax::optim
