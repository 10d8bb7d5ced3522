#pragma once
#include "triax/core/backend.h"

// The indices that kernels of every backend read. Always inlined, so that files compiled for
// different instruction levels share no copy.

namespace triax {

/// Indices of i32 or i64; the dtype is looked up when one is read, so that kernels need not be
/// compiled for both.
struct Indices {
  const void* data;
  bool wide;

  TRIAX_HD int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};
inline __attribute__((always_inline)) Indices indices_of(const Tensor& x) {
  return {x.data(), x.dtype() == DType::i64};
}

/// The targets of rows, and the slice of the vocabulary that the logits hold.
struct Targets {
  Indices ids;
  int64_t columns, valid;  ///< `valid`: columns that are no padding
  int64_t first, ignore;

  TRIAX_HD bool ignored(int64_t r) const { return ids[r] == ignore; }
  /// Returns the target's column here, or -1.
  TRIAX_HD int64_t column(int64_t r) const {
    int64_t c = ids[r] - first;
    return c >= 0 && c < valid && !ignored(r) ? c : -1;
  }
};
inline __attribute__((always_inline)) Targets targets_of(const CrossEntropy& c) {
  int64_t columns = c.logits.size(-1), known = c.vocab - c.first;
  int64_t valid = known < 0 ? 0 : known < columns ? known : columns;
  return {indices_of(c.targets), columns, valid, c.first, c.ignore};
}

}  // namespace triax
