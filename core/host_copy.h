#pragma once
#include <memory>

#include "core/backend.h"

namespace triax {

/// An asynchronous copy of a tensor's values to the host.
class HostCopy {
 public:
  /// Copies what `x`, contiguous, will hold when the work queued before is done.
  explicit HostCopy(const Tensor& x);
  HostCopy(HostCopy&&) noexcept = default;
  HostCopy& operator=(HostCopy&&) noexcept = default;
  ~HostCopy();

  /// Returns the values on the CPU; waits for them.
  const Tensor& values() const;

 private:
  Tensor values_;
  mutable std::unique_ptr<Mark> mark_;  ///< null: the values are there
};

}  // namespace triax
