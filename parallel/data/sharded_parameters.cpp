// ZeRO-3: weights are gathered for the layer that is at work, and dropped after it. This rank's
// slices of them, and of gradients, are there all the time, or on the host, or in a file.
#include <algorithm>

#include "autograd/backward.h"
#include "core/check.h"
#include "parallel/data/data_parallel.h"

namespace triax::parallel {

Bucket* DataParallel::holder(const nn::Parameter* p) const {
  for (auto& b : buckets_)
    for (auto& piece : b->layout.pieces)
      if (piece.parameter == p) return b.get();
  return nullptr;
}

namespace {

/// Of the first layer that uses it; empty without layers.
std::string layer_of(const nn::Parameter& p, const std::vector<nn::Layers>& chunks) {
  for (auto& chunk : chunks)
    for (auto& layer : chunk)
      for (auto* m : layer.uses)
        for (auto* used : m->parameters())
          if (used == &p) return layer.name;
  return "";
}

}  // namespace

/// Where slices are between uses. Weights and gradients of a bucket are neighbours in a file, as
/// the optimizer's update uses them.
void DataParallel::place(std::vector<BucketLayout>& layouts,
                         const std::vector<nn::Layers>& chunks) {
  std::vector<size_t> sizes;
  for (auto& l : layouts) {
    auto own = options_.layers.find(layer_of(*l.pieces[0].parameter, chunks));
    l.to = own != options_.layers.end() ? own->second : options_.offload.to;
    check_input(options_.zero == Zero::parameters || l.to == optim::Offload::To::off, Exit::config,
                "data parallel: weights are offloaded with ZeRO stage {}; expected stage 3, which "
                "has them only while they are used",
                int(options_.zero));
    if (l.to != optim::Offload::To::file) continue;
    l.record = sizes.size();
    std::vector<DType> dtypes{options_.dtype};
    if (!l.frozen()) dtypes.push_back(sums());
    if (!l.frozen() && options_.bitwise) dtypes.push_back(accumulator(options_.dtype));
    for (DType dtype : dtypes) sizes.push_back(size_t(l.length / dp_.size()) * size_of(dtype));
  }
  if (sizes.empty()) return;
  optim::Offload offload = options_.offload;
  // Whole layers: the weights and the gradient of one, bitwise its sums too, and something to come.
  offload.window = options_.bitwise ? 4 : 3;
  window_ = std::make_unique<optim::Window>(offload, optim::host_of(dp_.device()), sizes);
}

/// Flat, for values of this rank alone.
Tensor DataParallel::slice_of(const Bucket& b, DType dtype, size_t record) const {
  int64_t length = b.my_weight.numel();
  if (b.in_file()) return Tensor(window_->storage(record), dtype, {length}, {1});
  if (!b.offloaded()) return dp_.empty({length}, dtype);
  memory::Scope scope(memory::offloaded);
  return triax::empty({length}, dtype, optim::host_of(dp_.device()));
}

/// For the gradient, where sums are in fixed point.
Tensor DataParallel::rounded_slice(const Bucket& b) const {
  DType dtype = accumulator(options_.dtype);
  if (b.offloaded()) return slice_of(b, dtype, b.layout.record + 2);
  return empty(b.my_sums.shape(), dtype, dp_.device());
}

/// The sums, rounded once.
void DataParallel::round_sums(Bucket& b) {
  auto sums = b.my_sums.storage()->hold(Access::read);
  auto grad = b.in_file() ? window_->overwrite(b.layout.record + 2) : nullptr;
  copy_(b.my_grad, b.my_sums);
}

void DataParallel::write_weight(const Bucket& b, const Tensor& values) const {
  auto held = b.in_file() ? window_->overwrite(b.layout.record) : nullptr;
  copy_(b.my_weight, values);
}

/// What was reduced, to what earlier micro-batches brought.
void DataParallel::add_arrived(Bucket& b) {
  bool first = b.reductions == 1;
  auto held = first && b.in_file() ? window_->overwrite(b.layout.record + 1)
                                   : b.my_sums.storage()->hold(Access::write);
  Tensor arrived = b.arriving.to(b.my_sums.device());
  if (first) copy_(b.my_sums, arrived);
  else backend(b.my_sums).accumulate(arrived, b.my_sums);
}

void DataParallel::start_gather(Bucket& b) const {
  if (b.weight.storage()->present()) return;
  Tensor mine = b.my_weight;
  auto held = mine.storage()->hold(Access::read);  // may fail; then nothing is gathered
  b.weight.storage()->restore();
  if (b.offloaded()) {
    mine = b.weight.narrow(0, b.my_first, mine.numel());
    backend(dp_.device()).copy(b.my_weight, mine);  // the same values as before: no change
  }
  b.gathering = dp_.all_gather(mine, b.weight);
}

void DataParallel::acquire(Bucket& b) const {
  start_gather(b);
  b.gathering.wait();
  ++b.users;
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
