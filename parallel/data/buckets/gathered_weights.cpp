#include "triax/parallel/data/buckets/gathered_weights.h"

#include <algorithm>

#include "triax/autograd/backward.h"
#include "triax/core/check.h"

namespace triax::parallel {

void GatheredWeights::start_gather(Bucket& b) const {
  if (b.weight.storage()->present()) return;
  Tensor mine = b.my_weight;
  auto held = mine.storage()->hold(Access::read);  // may fail; then nothing is gathered
  b.weight.storage()->restore();
  if (b.offloaded()) {
    mine = b.weight.narrow(0, b.my_first, mine.numel());
    backend(m_.dp.device()).copy(b.my_weight, mine);  // values as before: no change
  }
  b.gathering = b.over->all_gather(mine, b.weight);
}

void GatheredWeights::acquire(Bucket& b) const {
  start_gather(b);
  b.gathering.wait();
  ++b.users;
}

void GatheredWeights::release(Bucket& b) const {
  if (--b.users == 0) b.weight.storage()->release();
}

/// Returns the buckets that each layer uses.
std::vector<GatheredWeights::Unit> GatheredWeights::units_of(const nn::Layers& chunk) const {
  std::vector<Unit> units;
  for (auto& layer : chunk) {
    auto& unit = units.emplace_back();
    for (auto* m : layer.uses)
      for (auto* p : m->parameters()) {
        Bucket* b = m_.holder(p);
        if (std::find(unit.begin(), unit.end(), b) == unit.end()) unit.push_back(b);
      }
  }
  return units;
}

void GatheredWeights::await(nn::Layers& chunk) const {
  auto units = units_of(chunk);
  for (size_t i = 0; i < chunk.size(); ++i)
    chunk[i].run = [unit = units[i], run = chunk[i].run](const Tensor& x, const nn::Batch& batch) {
      for (auto* b : unit) b->gathering.wait();
      return run(x, batch);
    };
}

void GatheredWeights::surround(nn::Layers& chunk) {
  auto units = units_of(chunk);
  bool ahead = m_.options.prefetch == DataParallelOptions::Prefetch::next;
  auto acquire_unit = [this, units, ahead](size_t i, int direction) {
    for (auto* b : units[i]) acquire(*b);
    size_t next = i + size_t(direction);  // below zero it wraps to a huge number
    if (ahead && next < units.size())
      for (auto* b : units[next]) start_gather(*b);
  };
  auto release_unit = [this, units](size_t i) {
    for (auto* b : units[i]) release(*b);
  };
  for (size_t i = 0; i < chunk.size(); ++i)
    chunk[i].run = [=, run = chunk[i].run](const Tensor& x, const nn::Batch& batch) {
      acquire_unit(i, +1);
      std::shared_ptr<void> forward(nullptr,
                                    [=](void*) { release_unit(i); });  // also if run throws
      bool leads = !requires_grad(x);  // nothing will come back through x
      Tensor y = run(leads ? x
                           : record("gathered", x.detach(), {x},
                                    [=](const Tensor& dy) {
                                      release_unit(i);
                                      return Tensors{dy};
                                    }),
                     batch);
      forward.reset();
      return record("released", y.detach(), {y}, [=](const Tensor& dy) {
        acquire_unit(i, -1);
        if (leads) autograd::after_backward([=] { release_unit(i); });
        return Tensors{dy};
      });
    };
}

std::shared_ptr<void> GatheredWeights::hold_all() const {
  for (auto& b : m_.buckets) acquire(*b);
  return std::shared_ptr<void>(nullptr, [this](void*) {
    for (auto& b : m_.buckets) release(*b);
  });
}

void GatheredWeights::end_step() const {
  for (auto& b : m_.buckets) {
    check(b->users == 0,
          "data parallel: weights of {} are still in use at the end of a step; expected every "
          "layer's output to depend on its input, and no handle of gather_all()",
          b->layout.pieces[0].parameter->name);
    b->gathering.wait();
    b->weight.storage()->release();
  }
}

}  // namespace triax::parallel
