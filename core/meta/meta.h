#pragma once
#include "triax/core/backend.h"

namespace triax {

/// The work that kernels on the meta device would have done.
struct KernelWork {
  double products = 0;   ///< FLOP in matrix products and attention: two for each multiply-add
  double bytes = 0;      ///< read and written by all other kernels, were nothing kept in a cache
  int64_t kernels = 0;   ///< asked for, but for matrix products
  int64_t matmuls = 0;   ///< matrix products
  double attention = 0;  ///< FLOP of `products` that are attention's
  double scores = 0;     ///< elements of its scores, seen or not, were they stored
  /// The bytes that GPUs move less (below 0: more) and the kernels that they start less. There a
  /// product adds the residual by itself and, in 16 bits, applies gelu or its slope.
  double fused_bytes = 0;
  int64_t fused_kernels = 0;

  KernelWork operator-(const KernelWork& before) const;
  KernelWork on_gpu() const;  ///< this with the fused bytes and kernels taken off
};

/// Returns the work of this thread since it was last set.
KernelWork& meta_work();

/// While it lives, kernels of this thread on the meta device hold the memory that they would on
/// devices of this kind: CPUs need more for some convolutions. Without one: on a CPU.
class MetaTarget : Scoped<Device::Kind> {
 public:
  explicit MetaTarget(Device::Kind kind);
  /// Returns the kind of this thread's innermost one.
  static Device::Kind kind();
};

/// The device that has shapes but no bytes and computes nothing: a program run on it shows what it
/// would hold and do, in no time. Values read from it are zero.
Backend& meta_backend();

}  // namespace triax
