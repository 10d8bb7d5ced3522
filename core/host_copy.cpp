#include "core/host_copy.h"

namespace triax {

HostCopy::HostCopy(const Tensor& x) {
  Backend& b = backend(x);
  auto bytes = std::make_shared<Storage>(x.bytes(), cpu, b.host_allocator());
  values_ = Tensor(std::move(bytes), x.dtype(), x.shape(), contiguous_strides(x.shape()));
  b.transfer(x, values_);
  mark_ = b.mark();
}

HostCopy::~HostCopy() = default;

const Tensor& HostCopy::values() const {
  if (mark_) mark_->wait();
  mark_ = nullptr;
  return values_;
}

}  // namespace triax
