#include "triax/parallel/pipeline/kept_values.h"

#include <cstring>

#include "triax/core/backend.h"
#include "triax/optim/offload.h"

namespace triax::parallel {
namespace {

Tensor bytes_of(const std::shared_ptr<Storage>& storage) {
  return {storage, u8, {int64_t(storage->bytes())}, {1}};
}

/// Copies on `device`; if that is the CPU, by a thread, or, where no thread can be had, once it is
/// waited for.
std::future<void> begin_copy(const Tensors& from, const Tensors& to, Device device) {
  auto each = [=](auto&& copy) {
    for (size_t i = 0; i < from.size(); ++i) copy(from[i], to[i]);
  };
  if (device == cpu)
    return std::async(
        std::launch::async | std::launch::deferred, each,
        [](const Tensor& x, const Tensor& y) { std::memcpy(y.data(), x.data(), x.bytes()); });
  each([&](const Tensor& x, const Tensor& y) { backend(device).transfer(x, y); });
  return {};
}

}  // namespace

KeptValues::KeptValues(const StorageList& made, const Tensor& y) {
  memory::Scope scope(memory::offloaded);
  for (auto& each : made) {
    auto s = each.lock();
    if (!s || !s->present() || s->device() != y.device() || s == y.storage()) continue;
    here_.push_back(bytes_of(s));
    host_.push_back(bytes_of(std::make_shared<Storage>(s->bytes(), optim::host_of(s->device()),
                                                       backend(y).host_allocator())));
  }
  if (!here_.empty()) copying_ = begin_copy(here_, host_, here_[0].device());
}

void KeptValues::offload() {
  if (copying_.valid()) copying_.get();
  for (Tensor& x : here_) x.storage()->release();
}

void KeptValues::reload() {
  for (Tensor& x : here_) x.storage()->restore();
  if (!here_.empty()) copying_ = begin_copy(host_, here_, here_[0].device());
}

void KeptValues::arrive() {
  if (copying_.valid()) copying_.get();
  here_.clear(), host_.clear();
}

}  // namespace triax::parallel
