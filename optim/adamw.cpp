#include "optim/adamw.h"

#include <algorithm>

#include "core/profile.h"
#include "optim/prepare.h"
#include "optim/window.h"

namespace triax::optim {
namespace {}  // namespace

AdamW::AdamW(const std::vector<Slot>& slots, const AdamWOptions& options) : options_(options) {
  auto in_unit = [](double x) { return x >= 0 && x < 1; };
  check(in_unit(options.beta1) && in_unit(options.beta2) && options.eps > 0,
        "adamw: beta1 {}, beta2 {}, eps {}; expected betas in [0, 1) and eps above 0",
        options.beta1, options.beta2, options.eps);
  check(options.offload.chunk > 0, "adamw: chunks of {} elements", options.offload.chunk);
  for (size_t i = 0; i < slots.size(); ++i) cut(i, slots[i]);
  if (options.offload.to == Offload::To::file) make_window();
  for (size_t i = 0; i < chunks_.size(); ++i) make_state(i);
}

AdamW::~AdamW() = default;

/// State that stays beside the weights is one chunk.
void AdamW::cut(size_t index, const Slot& s) {
  check_slot("adamw", s);
  const Offload& to = options_.offload;
  bool stays = to.to == Offload::To::off ||
               (to.to == Offload::To::host && host_of(s.weight.device()) == s.weight.device());
  int64_t all = s.weight.numel(), most = stays ? std::max<int64_t>(1, all) : to.chunk;
  for (int64_t begin = 0; begin < all; begin += most) {
    int64_t n = std::min(most, all - begin);
    OptimizerSlot part{.weight = s.weight.narrow(0, begin, n),
                       .grad = s.grad.narrow(0, begin, n),
                       .decayed = within(s.decayed, begin, begin + n)};
    chunks_.push_back({.slot = index, .begin = begin, .part = std::move(part), .rates = s.rates});
  }
}

void AdamW::make_window() {
  std::vector<size_t> sizes;
  for (const Chunk& c : chunks_)
    sizes.push_back(c.part.grad.bytes() * (needs_master(c.part) ? 3 : 2));
  Device device = chunks_.empty() ? cpu : host_of(chunks_.front().part.weight.device());
  window_ = std::make_unique<Window>(options_.offload, device, sizes);
}

void AdamW::make_state(size_t i) {
  Chunk& c = chunks_[i];
  const Tensor &weight = c.part.weight, &grad = c.part.grad;
  auto held = window_ ? window_->pass(i) : nullptr;
  bool off = options_.offload.to == Offload::To::off;
  memory::Scope scope(off ? memory::optimizer : memory::offloaded);
  auto tensor = [&](int64_t position) {  // in its record, or by itself
    if (window_)
      return Tensor(window_->storage(i), grad.dtype(), grad.shape(), {1}, position * grad.numel());
    return empty(grad.shape(), grad.dtype(), off ? grad.device() : host_of(grad.device()));
  };
  c.m = tensor(0), c.v = tensor(1);
  fill_(c.m, 0), fill_(c.v, 0);
  if (!needs_master(c.part)) return;
  c.part.master = tensor(2);
  auto weight_held = weight.storage()->hold(Access::read);
  copy_(c.part.master, weight);
}

void AdamW::update(const StepDecision& d) { run({.lr = d.lr, .grad_scale = d.grad_scale}); }
void AdamW::apply(const Tensor& decision) { run({.plan = decision}); }

void AdamW::run(AdamWStep o) {
  ProfileRange range("adamw");
  o.beta1 = options_.beta1, o.beta2 = options_.beta2;
  o.eps = options_.eps, o.weight_decay = options_.weight_decay;
  o.step = steps();
  memory::Scope scope(memory::buffers);  // for copies of what is on another device
  if (o.plan.defined() && !chunks_.empty()) o.plan = o.plan.to(chunks_.front().m.device());
  PerSlot<AdamWStep> steps(o);
  for (size_t i = 0; i < chunks_.size(); ++i) {
    auto held = window_ ? window_->pass(i) : nullptr;
    const Chunk& c = chunks_[i];
    auto weight_held = c.part.weight.storage()->hold(Access::write);
    auto grad_held = c.part.grad.storage()->hold(Access::read);
    OptimizerSlot part = c.part;
    part.weight = part.weight.to(c.m.device());
    part.grad = part.grad.to(c.m.device());
    backend(c.m).adamw(part, c.m, c.v, steps.at(c.rates));
    if (!part.weight.is(c.part.weight)) copy_(c.part.weight, part.weight);
  }
}

std::vector<SlotState> AdamW::state() const {
  std::vector<SlotState> all;
  for (const Chunk& c : chunks_) {
    all.push_back({c.slot, "m", c.m, c.begin});
    all.push_back({c.slot, "v", c.v, c.begin});
    if (c.part.master.defined()) all.push_back({c.slot, "master", c.part.master, c.begin});
  }
  return all;
}

}  // namespace triax::optim
