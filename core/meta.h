#pragma once
#include "core/backend.h"

namespace triax {

/// What kernels asked for on the meta device would have done.
struct KernelWork {
  double products = 0;  ///< FLOP in matrix products and attention: two for each multiply-add
  double bytes = 0;     ///< read and written by all other kernels, were nothing kept in a cache
  int64_t kernels = 0;  ///< asked for
};

/// Of this thread, since it was last set.
KernelWork& meta_work();

/// The device that has shapes but no bytes and computes nothing: a program run on it shows what it
/// would hold and do, in no time. Values read from it are zero.
Backend& meta_backend();

}  // namespace triax
