// ZeRO-3: weights are gathered for the layer that is at work, and dropped after it. This rank's
// slices of them, and of gradients, are there all the time, or on the host, or in a file.
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

/// Weights and gradients of a bucket are neighbours, as the optimizer's update uses them.
void DataParallel::make_window(const std::vector<BucketLayout>& layouts) {
  std::vector<size_t> sizes;
  for (auto& l : layouts)
    for (DType dtype : {options_.dtype, accumulator(options_.dtype)})
      sizes.push_back(size_t(l.length / dp_.size()) * size_of(dtype));
  optim::Offload offload = options_.offload;
  offload.window = 3;  // whole layers: the weights and the gradient of one, and something to come
  window_ = std::make_unique<optim::Window>(offload, optim::host_of(dp_.device()), sizes);
}

/// Flat, for values of this rank alone.
Tensor DataParallel::slice_of(int64_t length, DType dtype, size_t record) const {
  if (window_) return Tensor(window_->storage(record), dtype, {length}, {1});
  if (!offloads()) return dp_.empty({length}, dtype);
  memory::Scope scope(memory::offloaded);
  return triax::empty({length}, dtype, optim::host_of(dp_.device()));
}

void DataParallel::write_weight(const Bucket& b, const Tensor& values) const {
  auto held = window_ ? window_->overwrite(b.record) : nullptr;
  copy_(b.my_weight, values);
}

/// What was reduced, to what earlier micro-batches brought.
void DataParallel::add_arrived(Bucket& b) {
  bool first = b.reductions == 1;
  auto held = first && window_ ? window_->overwrite(b.record + 1)
                               : b.my_grad.storage()->hold(Access::write);
  Tensor arrived = b.arriving.to(b.my_grad.device());
  if (first) copy_(b.my_grad, arrived);
  else backend(b.my_grad).accumulate(arrived, b.my_grad);
}

void DataParallel::start_gather(Bucket& b) const {
  if (b.weight.storage()->present()) return;
  b.weight.storage()->restore();
  Tensor mine = b.my_weight;
  if (offloads()) {
    auto held = mine.storage()->hold(Access::read);
    mine = b.weight.narrow(0, b.my_first, mine.numel());
    copy_(mine, b.my_weight);
  }
  b.gathering = dp_.all_gather(mine, b.weight);
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
