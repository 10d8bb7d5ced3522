#pragma once
#include <memory>

#include "triax/core/backend.h"

namespace triax {

/// An asynchronous copy of a tensor's values to the host.
class HostCopy {
 public:
  /// Copies what `x`, contiguous, will hold when the work queued before is done.
  explicit HostCopy(const Tensor& x) {
    Backend& b = backend(x);
    auto bytes = std::make_shared<Storage>(x.bytes(), cpu, b.host_allocator());
    values_ = Tensor(std::move(bytes), x.dtype(), x.shape(), contiguous_strides(x.shape()));
    b.transfer(x, values_);
    mark_ = b.mark();
  }

  /// Returns the values on the CPU; waits for them.
  const Tensor& values() const {
    if (mark_) mark_->wait();
    mark_ = nullptr;
    return values_;
  }

 private:
  Tensor values_;
  mutable std::unique_ptr<Mark> mark_;  ///< null: the values are there
};

}  // namespace triax
