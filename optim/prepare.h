#pragma once
#include "core/check.h"
#include "optim/slot.h"

namespace triax::optim {

/// Of a Slot or an OptimizerSlot: do low-precision weights need an f32 master?
template <class Slot> bool needs_master(const Slot& s) {
  return s.weight.dtype() != s.grad.dtype();
}

/// Throws Error 70 unless an optimizer can update the slot.
inline void check_slot(const char* op, const Slot& s) {
  check(s.weight.defined() && s.grad.defined() && s.weight.rank() == 1 &&
            s.grad.shape() == s.weight.shape() && s.weight.is_contiguous() &&
            s.grad.is_contiguous() && s.grad.dtype() == accumulator(s.weight.dtype()),
        "{}: slot with weight {} and gradient {}; expected flat, contiguous ones of equal length, "
        "the gradient in the accumulator dtype",
        op, describe(s.weight), describe(s.grad));
  int64_t end = 0;
  for (auto& r : s.decayed) {
    check(r.begin >= end && r.end >= r.begin && r.end <= s.weight.numel(),
          "{}: decayed range [{}, {}) of a slot of {}; expected sorted ranges inside it", op,
          r.begin, r.end, s.weight.numel());
    end = r.end;
  }
}

}  // namespace triax::optim
