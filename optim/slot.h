#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/backend.h"
#include "optim/offload.h"

namespace triax::optim {

/// What one slot is updated with that others are not; an optimizer heeds it (PerSlot).
struct Rates {
  double lr = 1;                            ///< factor of the step's learning rate
  std::optional<double> weight_decay = {};  ///< in place of the optimizer's own
  bool operator==(const Rates&) const = default;
};

/// Where a hidden matrix lies in a slot, row-major; convolutions are [out, the rest].
struct Matrix {
  std::string name;  ///< of the parameter
  Range range;       ///< in the slot
  int64_t rows, columns;
  /// False of what ZeRO or tensor parallelism has cut.
  bool whole() const { return range.end - range.begin == rows * columns; }
};

/// A flat piece of weights, their gradients (accumulator dtype), the ranges within it that weight
/// decay applies to, its rates, and the matrices in it, embeddings and heads aside. All an
/// optimizer knows of a model. What lies in files, of these too, has to be held while it is used:
/// weight.storage()->hold(access).
struct Slot {
  Tensor weight, grad;
  std::vector<Range> decayed = {};
  Rates rates = {};
  std::vector<Matrix> matrices = {};
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
