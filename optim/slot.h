#pragma once
#include <vector>

#include "core/backend.h"

namespace triax::optim {

/// A flat piece of weights, their gradients (accumulator dtype), and the ranges within it that
/// weight decay applies to. All an optimizer knows of a model.
struct Slot {
  Tensor weight, grad;
  std::vector<Range> decayed = {};
};

/// One tensor of optimizer state: which slot it belongs to, what it is called (`m`, `v`, `master`),
/// flat and of the slot's length.
struct SlotState {
  size_t slot;
  const char* kind;
  Tensor value;
};

}  // namespace triax::optim
