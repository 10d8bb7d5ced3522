#include "triax/optim/adamw.h"

#include <algorithm>

#include "triax/core/profile.h"
#include "triax/optim/prepare.h"
#include "triax/optim/window.h"

namespace triax::optim {

AdamW::AdamW(const std::vector<Slot>& slots, const AdamWOptions& options) : options_(options) {
  auto in_unit = [](double x) { return x >= 0 && x < 1; };
  check(in_unit(options.beta1) && in_unit(options.beta2) && options.eps > 0,
        "adamw: beta1 {}, beta2 {}, eps {}; expected betas in [0, 1) and eps above 0",
        options.beta1, options.beta2, options.eps);
  check(options.offload.chunk > 0, "adamw: chunks of {} elements", options.offload.chunk);
  for (size_t i = 0; i < slots.size(); ++i) cut(i, slots[i]);
  make_window();
  for (Chunk& c : chunks_) make_state(c);
}

AdamW::~AdamW() = default;

/// Cuts a slot's state into chunks; state that stays beside the weights is one chunk.
void AdamW::cut(size_t index, const Slot& s) {
  check_slot("adamw", s);
  auto to = std::max(options_.offload.to, s.state);
  bool stays = to == Offload::To::off ||
               (to == Offload::To::host && host_of(s.weight.device()) == s.weight.device());
  int64_t all = s.weight.numel(), most = stays ? std::max<int64_t>(1, all) : options_.offload.chunk;
  for (int64_t begin = 0; begin < all; begin += most) {
    int64_t n = std::min(most, all - begin);
    OptimizerSlot part{.weight = s.weight.narrow(0, begin, n),
                       .grad = s.grad.narrow(0, begin, n),
                       .decayed = within(s.decayed, begin, begin + n)};
    chunks_.push_back(
        {.slot = index, .begin = begin, .to = to, .part = std::move(part), .rates = s.rates});
  }
}

void AdamW::make_window() {
  std::vector<size_t> sizes;
  for (Chunk& c : chunks_) {
    if (c.to != Offload::To::file) continue;
    c.record = sizes.size();
    sizes.push_back(c.part.grad.bytes() * (needs_master(c.part) ? 3 : 2));
  }
  if (sizes.empty()) return;
  Device device = host_of(chunks_.front().part.weight.device());
  window_ = std::make_unique<Window>(options_.offload, device, sizes);
}

/// Holds a chunk's state for its turn in a pass over all chunks.
std::shared_ptr<void> AdamW::hold(const Chunk& c) const {
  return c.record ? window_->pass(*c.record) : nullptr;
}

void AdamW::make_state(Chunk& c) {
  const Tensor &weight = c.part.weight, &grad = c.part.grad;
  auto held = hold(c);
  bool off = c.to == Offload::To::off;
  memory::Scope scope(off ? memory::optimizer : memory::offloaded);
  auto tensor = [&](int64_t position) {  // in its record, or by itself
    if (c.record)
      return Tensor(window_->storage(*c.record), grad.dtype(), grad.shape(), {1},
                    position * grad.numel());
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
void AdamW::apply(const Tensor& decision) { run({.decision = decision}); }

void AdamW::run(UpdateStep o) {
  ProfileRange range("adamw");
  o.step = steps();
  AdamWRule rule{options_.beta1, options_.beta2, options_.eps, options_.weight_decay};
  memory::Scope scope(memory::buffers);  // for copies of what is on another device
  UpdateStep on_host = o;
  bool far = o.decision.defined() && std::any_of(chunks_.begin(), chunks_.end(), [&](auto& c) {
               return c.m.device() != o.decision.device();
             });
  if (far) on_host.decision = o.decision.to(host_of(o.decision.device()));
  bool known = window_ && o.decision.defined() && on_host.decision.device() == cpu;
  if (known && on_host.decision.to_host<double>()[3] == 0)
    return;  // nothing changes: no file is read
  RatedUpdate here(rule, o), there(rule, on_host);
  for (const Chunk& c : chunks_) {
    auto held = hold(c);
    auto weight_held = c.part.weight.storage()->hold(Access::write);
    auto grad_held = c.part.grad.storage()->hold(Access::read);
    OptimizerSlot part = c.part;
    part.weight = part.weight.to(c.m.device());
    part.grad = part.grad.to(c.m.device());
    bool near = !o.decision.defined() || c.m.device() == o.decision.device();
    (near ? here : there)(part, {c.m, c.v}, c.rates);
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
