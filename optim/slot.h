#pragma once
#include <vector>

#include "core/backend.h"
#include "optim/offload.h"

namespace triax::optim {

/// A flat piece of weights, their gradients (accumulator dtype), and the ranges within it that
/// weight decay applies to. All an optimizer knows of a model. What lies in files, of these too,
/// has to be held while it is used: weight.storage()->hold(access).
struct Slot {
  Tensor weight, grad;
  std::vector<Range> decayed = {};
  /// Where its state is kept if the optimizer keeps that of others nearer.
  Offload::To state = Offload::To::off;
};

/// One tensor of optimizer state: which slot it belongs to, what it is called (`m`, `v`, `master`),
/// and the elements of the slot from `begin` on that it is of, flat. What is offloaded to files has
/// to be held while it is used: value.storage()->hold(access).
struct SlotState {
  size_t slot;
  const char* kind;
  Tensor value;
  int64_t begin = 0;
};

}  // namespace triax::optim
