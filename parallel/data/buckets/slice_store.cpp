#include "triax/parallel/data/buckets/slice_store.h"

#include "triax/core/check.h"

namespace triax::parallel {
namespace {

/// Returns the name of the first layer that uses `p`; empty without layers.
std::string layer_of(const nn::Parameter& p, const std::vector<nn::Layers>& chunks) {
  for (auto& chunk : chunks)
    for (auto& layer : chunk)
      for (auto* m : layer.uses)
        for (auto* used : m->parameters())
          if (used == &p) return layer.name;
  return "";
}

}  // namespace

void SliceStore::place(std::vector<BucketLayout>& layouts, const std::vector<nn::Layers>& chunks) {
  std::vector<size_t> sizes;
  for (auto& l : layouts) {
    auto own = m_.options.layers.find(layer_of(*l.pieces[0].parameter, chunks));
    l.to = own != m_.options.layers.end() ? own->second : m_.options.offload.to;
    check_input(m_.options.zero == Zero::parameters || l.to == optim::Offload::To::off,
                Exit::config,
                "data parallel: weights are offloaded with ZeRO stage {}; expected stage 3, which "
                "has them only while they are used",
                int(m_.options.zero));
    if (l.to != optim::Offload::To::file) continue;
    l.record = sizes.size();
    std::vector<DType> dtypes{m_.options.dtype};
    if (!l.frozen()) dtypes.push_back(m_.sum_dtype());
    if (!l.frozen() && m_.options.bitwise) dtypes.push_back(accumulator(m_.options.dtype));
    for (DType dtype : dtypes)
      sizes.push_back(size_t(l.length / m_.over(*l.pieces[0].parameter).size()) * size_of(dtype));
  }
  if (sizes.empty()) return;
  optim::Offload offload = m_.options.offload;
  // Whole layers: one's weights and gradient, with bitwise its sums, and one that is read ahead.
  offload.window = m_.options.bitwise ? 4 : 3;
  window_ = std::make_unique<optim::Window>(offload, optim::host_of(m_.dp.device()), sizes);
}

Tensor SliceStore::make(const Bucket& b, DType dtype, size_t record) const {
  int64_t length = b.my_weight.numel();
  if (b.in_file()) return Tensor(window_->storage(record), dtype, {length}, {1});
  if (!b.offloaded()) return m_.dp.empty({length}, dtype);
  memory::Scope scope(memory::offloaded);
  return triax::empty({length}, dtype, optim::host_of(m_.dp.device()));
}

Tensor SliceStore::make_rounded(const Bucket& b) const {
  DType dtype = accumulator(m_.options.dtype);
  if (b.offloaded()) return make(b, dtype, b.layout.record + 2);
  return empty(b.my_sums.shape(), dtype, m_.dp.device());
}

void SliceStore::round_sums(Bucket& b) const {
  auto sums = b.my_sums.storage()->hold(Access::read);
  auto grad = b.in_file() ? window_->overwrite(b.layout.record + 2) : nullptr;
  copy_(b.my_grad, b.my_sums);
}

void SliceStore::write_weight(const Bucket& b, const Tensor& values) const {
  auto held = b.in_file() ? window_->overwrite(b.layout.record) : nullptr;
  copy_(b.my_weight, values);
}

void SliceStore::add_arrived(Bucket& b) const {
  bool first = b.reductions == 1;
  auto held = first && b.in_file() ? window_->overwrite(b.layout.record + 1)
                                   : b.my_sums.storage()->hold(Access::write);
  Tensor arrived = b.arriving.to(b.my_sums.device());
  if (first) copy_(b.my_sums, arrived);
  else backend(b.my_sums).accumulate(arrived, b.my_sums);
}

}  // namespace triax::parallel
