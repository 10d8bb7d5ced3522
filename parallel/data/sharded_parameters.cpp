// ZeRO-3: weights are gathered for the layer that is at work, and dropped after it.
#include <algorithm>

#include "autograd/backward.h"
#include "parallel/data/data_parallel.h"

namespace triax::parallel {

Bucket* DataParallel::holder(const nn::Parameter* p) const {
  for (auto& b : buckets_)
    for (auto& piece : b->layout.pieces)
      if (piece.parameter == p) return b.get();
  return nullptr;
}

void DataParallel::start_gather(Bucket& b) const {
  if (b.weight.storage()->present()) return;
  b.weight.storage()->restore();
  b.gathering = dp_.all_gather(b.my_weight, b.weight);
}

void DataParallel::acquire(Bucket& b) const {
  ++b.users;
  start_gather(b);
  b.gathering.wait();
}

void DataParallel::release(Bucket& b) const {
  if (--b.users == 0) b.weight.storage()->release();
}

/// A layer's weights are there from the op at its input to the op at its output; in backward the
/// same two, the other way round. The release hangs on the input's op, not on the last gradient,
/// which a schedule may put off and an unused parameter never has.
void DataParallel::surround(nn::Layers& chunk) {
  std::vector<std::vector<Bucket*>> units;
  for (auto& layer : chunk) {
    auto& unit = units.emplace_back();
    for (auto* m : layer.uses)
      for (auto* p : m->parameters()) {
        Bucket* b = holder(p);
        if (std::find(unit.begin(), unit.end(), b) == unit.end()) unit.push_back(b);
      }
  }
  bool ahead = options_.prefetch == DataParallelOptions::Prefetch::next;
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

std::shared_ptr<void> DataParallel::gather_all() const {
  if (options_.zero != Zero::parameters) return nullptr;
  for (auto& b : buckets_) acquire(*b);
  return std::shared_ptr<void>(nullptr, [this](void*) {
    for (auto& b : buckets_) release(*b);
  });
}

}  // namespace triax::parallel
