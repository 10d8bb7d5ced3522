#pragma once
#include "core/cuda/convert.h"
#include "core/cuda/cuda.h"

// Helpers for the host's side of kernels.

namespace triax::cuda::TRIAX_TARGET {

/// The first element, or null if `x` is undefined.
template <class T> T* values(const Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data()) : nullptr;
}

/// Sizes of the last dim and of all others together.
struct Rows {
  int64_t rows, width;
};
inline Rows rows_of(const Tensor& x) {
  int64_t width = x.rank() ? x.size(-1) : 1;
  return {width ? x.numel() / width : 0, width};
}

}  // namespace triax::cuda::TRIAX_TARGET
