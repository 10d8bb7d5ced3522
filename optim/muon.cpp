#include "triax/optim/muon.h"

#include <cmath>

#include "triax/core/profile.h"
#include "triax/optim/prepare.h"

namespace triax::optim {
namespace {

/// Returns the part of a slot that lies in [begin, end).
Slot part_of(const Slot& s, int64_t begin, int64_t end) {
  return {s.weight.narrow(0, begin, end - begin), s.grad.narrow(0, begin, end - begin),
          within(s.decayed, begin, end), s.rates};
}

}  // namespace

Tensor orthogonalized(const Tensor& x, int iterations) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;  // Jordan et al.: steepest at 0
  bool tall = x.size(0) > x.size(1);
  Tensor y = tall ? transpose(x, 0, 1) : x;
  for (int i = 0; i < iterations; ++i) {
    Tensor square = matmul(y, transpose(y, 0, 1));
    y = y * a + matmul(square * b + matmul(square, square) * c, y);
  }
  return (tall ? transpose(y, 0, 1) : y).contiguous();
}

Muon::Muon(const std::vector<Slot>& slots, const MuonOptions& options) : options_(options) {
  check(options.momentum >= 0 && options.momentum < 1 && options.iterations >= 1,
        "muon: momentum {}, {} iterations; expected a momentum in [0, 1), and an iteration",
        options.momentum, options.iterations);
  memory::Scope scope(memory::optimizer);
  std::vector<Slot> rest;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& s = slots[i];
    check_slot("muon", s);
    device_ = s.weight.device();
    int64_t done = 0;
    auto leave = [&](int64_t end) {  // what lies before the next matrix is AdamW's
      if (done < end) rest.push_back(part_of(s, done, end)), places_.push_back({i, done});
    };
    for (auto& matrix : s.matrices) {
      leave(matrix.range.begin);
      add(i, s, matrix);
      done = matrix.range.end;
    }
    leave(s.weight.numel());
  }
  rest_ = std::make_unique<AdamW>(rest, options.adamw);
}

void Muon::add(size_t index, const Slot& s, const Matrix& m) {
  check(m.whole() || m.gather,
        "muon: this rank holds {} of the {} x {} elements of {}; expected all, or ranks to gather "
        "them from",
        m.range.end - m.range.begin, m.rows, m.columns, m.name);
  Slot part = part_of(s, m.range.begin, m.range.end);
  Entry e{.slot = index,
          .matrix = m,
          .part = {part.weight, part.grad, {}, part.decayed},
          .rates = s.rates,
          .velocity = zeros_like(part.grad)};
  if (needs_master(part)) e.part.master = part.weight.to(part.grad.dtype());
  entries_.push_back(std::move(e));
}

void Muon::update(const StepDecision& d) {
  apply(from_host(values_of(d), {StepDecision::size}, device_));
}

/// Updates by the rule of SGD, which subtracts the orthogonal matrix and so must not scale it.
void Muon::apply(const Tensor& decision) {
  ProfileRange range("muon");
  NoGrad guard;
  rest_->set_steps(steps() - 1);
  rest_->step(decision);
  memory::Scope scope(memory::buffers);
  Tensor unscaled = clone(decision);
  fill_(unscaled.narrow(0, 2, 1), 1);
  RatedUpdate update(SgdRule{.weight_decay = options_.weight_decay}, {.decision = unscaled});
  const double mu = options_.momentum;
  for (auto& e : entries_) {
    OptimizerSlot part = e.part;
    Tensor g = part.grad * decision.narrow(0, 2, 1).to(part.grad.dtype());
    if (g.numel() > 0) backend(g).average(e.velocity, g, {.rate = 1 - mu, .decision = decision});
    const Matrix& m = e.matrix;
    Tensor u = g * (1 - mu) + e.velocity * mu;
    u = m.gather ? m.gather(u) : u.view({m.rows, m.columns});
    u = u / (sqrt(sum(u * u)) + 1e-7);
    Tensor o = orthogonalized(part.weight.dtype() == bf16 ? u.to(bf16) : u, options_.iterations);
    double size = 0.2 * std::sqrt(double(std::max(m.rows, m.columns)));
    o = o.to(part.grad.dtype()) * size;
    part.grad = m.part ? m.part(o) : o.view({o.numel()});
    if (part.grad.numel() > 0) update(part, {}, e.rates);
  }
}

std::vector<SlotState> Muon::state() const {
  std::vector<SlotState> all;
  for (auto& e : entries_) {
    if (e.velocity.numel() == 0) continue;
    int64_t begin = e.matrix.range.begin;
    all.push_back({e.slot, "velocity", e.velocity, begin});
    if (e.part.master.defined()) all.push_back({e.slot, "master", e.part.master, begin});
  }
  for (auto& s : rest_->state()) {
    const Place& place = places_[s.slot];
    all.push_back({place.slot, s.kind, s.value, place.begin + s.begin});
  }
  return all;
}

}  // namespace triax::optim
