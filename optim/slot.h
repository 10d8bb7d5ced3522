#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "triax/core/backend.h"
#include "triax/optim/offload.h"

namespace triax::optim {

/// The rates of one slot, where they differ from the optimizer's; RatedUpdate applies them.
struct Rates {
  double lr = 1;                            ///< multiplies the step's learning rate
  std::optional<double> weight_decay = {};  ///< in place of the optimizer's own
  bool operator==(const Rates&) const = default;
};

/// The place of a hidden matrix in a slot, row-major; convolutions are [out, the rest].
struct Matrix {
  std::string name;  ///< of the parameter
  Range range;       ///< in the slot; empty where other ranks hold all of it
  int64_t rows, columns;
  /// Where ZeRO or tensor parallelism has cut it: returns the whole [rows, columns] of what the
  /// ranks hold, flat. Collective; each rank calls those of all its matrices in their order.
  std::function<Tensor(const Tensor& part)> gather = {};
  std::function<Tensor(const Tensor& whole)> part = {};  ///< returns this rank's part, flat
  /// True if this rank holds all of it.
  bool whole() const { return range.end - range.begin == rows * columns; }
};

/// A flat piece of weights, their gradients (accumulator dtype), the ranges within it that weight
/// decay applies to, its rates, and the matrices in it, embeddings and heads aside. An optimizer
/// knows nothing else of a model. Weights and gradients that lie in files have to be held while
/// used: weight.storage()->hold(access).
struct Slot {
  Tensor weight, grad;
  std::vector<Range> decayed = {};
  Rates rates = {};
  std::vector<Matrix> matrices = {};
  /// The place of its state, if farther than where the optimizer keeps that of others.
  Offload::To state = Offload::To::off;
};

/// One tensor of optimizer state: its slot, its kind (`m`, `v`, `master`), and the elements of the
/// slot, from `begin` on, that it belongs to, flat. State offloaded to files has to be held while
/// it is used: value.storage()->hold(access).
struct SlotState {
  size_t slot;
  const char* kind;
  Tensor value;
  int64_t begin = 0;
};

}  // namespace triax::optim
