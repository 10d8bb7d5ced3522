#pragma once
#include <memory>

#include "core/backend.h"

namespace triax {

/// A tensor's values on their way to the host, which goes on meanwhile.
class HostCopy {
 public:
  /// Of what `x` will hold when the work that was queued before is done. `x` is contiguous.
  explicit HostCopy(const Tensor& x);
  HostCopy(HostCopy&&) noexcept = default;
  HostCopy& operator=(HostCopy&&) noexcept = default;
  ~HostCopy();

  /// The values on the CPU; waits for them.
  const Tensor& values() const;

 private:
  Tensor values_;
  mutable std::unique_ptr<Mark> mark_;  ///< none: they are there
};

}  // namespace triax
