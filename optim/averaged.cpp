#include "triax/optim/averaged.h"

#include <cmath>
#include <string_view>

#include "triax/optim/prepare.h"

namespace triax::optim {

Averaged::Averaged(const std::vector<Slot>& slots, std::unique_ptr<Optimizer> optimizer,
                   double decay)
    : optimizer_(std::move(optimizer)), decay_(decay) {
  check(decay >= 0 && decay < 1, "average: decay {}; expected 0 <= it < 1", decay);
  memory::Scope scope(memory::optimizer);
  std::vector<bool> has_master(slots.size());
  auto add = [&](size_t slot, const Tensor& weight, int64_t begin) {
    Tensor average = empty(weight.shape(), slots[slot].grad.dtype(), weight.device());
    copy_(average, weight);
    parts_.push_back({{slot, "average", average, begin}, weight});
  };
  for (auto& s : optimizer_->state())
    if (s.kind == std::string_view("master")) {
      add(s.slot, s.value, s.begin);
      has_master[s.slot] = true;
    }
  for (size_t i = 0; i < slots.size(); ++i) {
    check_slot("average", slots[i]);
    if (!has_master[i]) add(i, slots[i].weight, 0);
  }
}

void Averaged::update(const StepDecision& d) {
  optimizer_->set_steps(steps() - 1);
  optimizer_->step(d.lr, d.grad_scale);
  follow({});
}

void Averaged::apply(const Tensor& decision) {
  optimizer_->set_steps(steps() - 1);
  optimizer_->step(decision);
  follow(decision);
}

void Averaged::follow(const Tensor& decision) {
  double rate = (1 - decay_) / (1 - std::pow(decay_, double(steps())));
  for (auto& p : parts_)
    backend(p.weight).average(p.average.value, p.weight, {.rate = rate, .decision = decision});
}

std::vector<SlotState> Averaged::state() const {
  auto all = optimizer_->state();
  for (auto& p : parts_) all.push_back(p.average);
  return all;
}

}  // namespace triax::optim
