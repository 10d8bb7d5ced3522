#pragma once
#include "core/check.h"
#include "optim/slot.h"

namespace triax::optim {

/// Check a slot and give low-precision weights their f32 master.
inline OptimizerSlot prepare(const char* op, const Slot& s) {
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
  OptimizerSlot slot{s.weight, s.grad, {}, s.decayed};
  if (s.weight.dtype() != s.grad.dtype()) slot.master = s.weight.to(s.grad.dtype());
  return slot;
}

}  // namespace triax::optim
