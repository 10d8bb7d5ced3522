#include "triax/parallel/train/model/buffers.h"

#include <algorithm>

#include "triax/core/memory.h"

namespace triax::parallel {

Buffers::Buffers(const std::vector<nn::Layers>& chunks, Mesh& mesh)
    : mesh_(mesh), data_(mesh.over(mesh.shape().along(Cuts::samples | Cuts::rows))) {
  int64_t elements = 0;
  for (auto& layers : chunks)
    for (auto& layer : layers)
      for (auto* module : layer.uses)
        for (auto* b : module->buffers())
          if (std::ranges::find(all_, b) == all_.end()) {
            all_.push_back(b);
            elements += b->shape.numel();
          }
  memory::Scope scope(memory::parameters);
  Device device = mesh.world().device();
  sums_ = empty({elements}, f32, device);
  int64_t at = 0;
  for (auto* b : all_) {
    b->sum = sums_.narrow(0, at, b->shape.numel()).view(b->shape);
    at += b->shape.numel();
    b->materialize(device);
  }
}

void Buffers::begin() {
  if (all_.empty()) return;
  fill_(sums_, 0);
  for (auto* b : all_) b->count = 0;
}

void Buffers::update(const Tensor& decision) {
  if (all_.empty()) return;
  if (data_.size() > 1) data_.all_reduce(sums_).wait();
  for (auto* b : all_) b->update(data_.size(), decision);
}

double Buffers::busiest() const {
  double most = 0;
  for (auto* b : all_)
    if (b->rule == nn::Buffer::Rule::share && b->value.device() != meta_device) {
      auto shares = b->value.to_host<float>();
      most = std::max(most, double(*std::ranges::max_element(shares)) * double(shares.size()));
    }
  return most;
}

std::vector<Piece> Buffers::pieces(Holder whose) const {
  std::vector<Piece> pieces;
  const MeshShape& shape = mesh_.shape();
  bool owner = shape.place(mesh_.world().rank(), shape.along(~Cuts::layers)) == 0;
  if (whose == Holder::owner && !owner) return pieces;
  for (auto* b : all_) pieces.push_back({b->name, "", {.full = b->shape}, b->value});
  return pieces;
}

}  // namespace triax::parallel
