#include "triax/parallel/data/scatter_gather.h"

#include <algorithm>
#include <utility>

#include "triax/autograd/ops.h"
#include "triax/core/check.h"

namespace triax::parallel {
namespace {

/// Replaces, while it lives, the parameters and buffers of a model by copies on another device.
class Replicated : Immovable {
 public:
  Replicated(nn::Module& model, Device device) : model_(model) {
    // All copies first: memory may not suffice, and then the model stays as it is.
    auto weights =
        transformed(model.parameters(), [&](auto* p) { return move_to(p->value, device); });
    std::vector<nn::Buffer> copies;
    for (auto* b : model.buffers()) {
      copies.push_back(*b);
      copies.back().value = b->value.to(device);
      copies.back().sum = zeros(b->shape, f32, device);
      copies.back().count = 0;
    }
    exchange(weights, copies);
    parameters_ = std::move(weights), buffers_ = std::move(copies);
  }
  ~Replicated() { exchange(parameters_, buffers_); }

  /// Adds what the copies of buffers have accumulated to the buffers.
  void collect() {
    auto copies = model_.buffers();
    for (size_t i = 0; i < copies.size(); ++i) {
      nn::Buffer& b = buffers_[i];
      backend(b.sum).accumulate(copies[i]->sum.to(b.sum.device()), b.sum);
      b.count += copies[i]->count;
    }
  }

 private:
  /// Swaps those of the model with these.
  void exchange(Tensors& weights, std::vector<nn::Buffer>& copies) {
    auto parameters = model_.parameters();
    auto buffers = model_.buffers();
    for (size_t i = 0; i < parameters.size(); ++i) std::swap(parameters[i]->value, weights[i]);
    for (size_t i = 0; i < buffers.size(); ++i) std::swap(*buffers[i], copies[i]);
  }

  nn::Module& model_;
  Tensors parameters_;  // those of the model itself
  std::vector<nn::Buffer> buffers_;
};

nn::Batch samples_of_rank(const nn::Batch& batch, int64_t begin, int64_t length, Device device) {
  nn::Batch part = nn::mapped(
      batch, [&](const Tensor& x) { return x.narrow(0, begin, length).contiguous().to(device); });
  if (batch.first != nn::evaluation) part.first += begin;
  part.cache = nullptr, part.loss.seed = {};
  return part;
}

}  // namespace

Tensor scatter_gather(nn::Module& model, const std::vector<Device>& devices, const nn::Batch& batch,
                      const Forward& forward) {
  check(!devices.empty(), "scatter_gather: no devices");
  check(batch.input.defined() && batch.input.rank() > 0 && batch.input.size(0) > 0,
        "scatter_gather: input {}; expected at least one sample along dim 0", batch.input);
  for (auto* p : model.parameters())
    check(p->value.defined() && p->value.device() == devices[0],
          "scatter_gather: {} is {}; expected it on {}, the first device", p->name, p->value,
          devices[0]);
  int64_t samples = batch.input.size(0), count = std::ssize(devices);
  int64_t each = (samples + count - 1) / count;
  Tensors gathered;
  for (int64_t i = 0; i * each < samples; ++i) {
    Device device = devices[size_t(i)];
    nn::Batch part = samples_of_rank(batch, i * each, std::min(each, samples - i * each), device);
    Replicated copy(model, device);
    Tensor y = forward(part);
    copy.collect();
    if (y.rank() == 0) y = view(y, {1});
    gathered.push_back(move_to(y, devices[0]));
  }
  return concat(gathered, 0);
}

}  // namespace triax::parallel
