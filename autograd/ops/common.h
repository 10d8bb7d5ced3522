#pragma once
#include <optional>

#include "triax/autograd/ops.h"
#include "triax/core/check.h"

namespace triax::autograd {

/// Checks that `x` is defined and a float tensor.
inline void check_float(const char* op, const Tensor& x) {
  check(x.defined() && is_float(x.dtype()), "{}: {}; expected a float tensor", op, x);
}
/// Checks that `b` has the dtype and device of `a`.
inline void check_same(const char* op, const Tensor& a, const Tensor& b) {
  check(a.defined() && b.defined() && a.dtype() == b.dtype() && a.device() == b.device(),
        "{}: {} with {}; expected one dtype and one device (take cast() or move_to())", op, a, b);
}
inline void check_index(const char* op, const Tensor& x, const Tensor& index) {
  check(index.defined() && is_index(index.dtype()) && index.device() == x.device(),
        "{}: index {}; expected i32 or i64 on {}", op, index, x.device());
}
/// Throws Error 65 unless every value lies in [0, limit) or is `ignored`; names the first that does
/// not.
void check_range(const char* op, const Tensor& index, int64_t limit,
                 std::optional<int64_t> ignored = {});

/// Returns `x` summed down to `shape`, which broadcasts to x's shape, in `dtype` (x's or its
/// accumulator's), without history.
Tensor sum_to(const Tensor& x, const Shape& shape, DType dtype);
inline Tensor sum_to(const Tensor& x, const Shape& shape) { return sum_to(x, shape, x.dtype()); }
/// Returns `x` so summed as the gradient of input `i`, undefined if none is wanted. A leaf collects
/// in the accumulator dtype, so its sum is not rounded before, and cannot overflow.
inline Tensor sum_to(const Tensor& x, const Shape& shape, const Into& into, size_t i) {
  return into.wanted(i) ? sum_to(x, shape, into.dtype(i)) : Tensor();
}

/// Returns x as a matrix [rows, last dim]: contiguous, without history.
inline Tensor rows_of(const Tensor& x) {
  int64_t width = x.rank() ? x.shape().back() : 1;
  return x.detach().contiguous().view({width ? x.numel() / width : 0, width});
}

}  // namespace triax::autograd
