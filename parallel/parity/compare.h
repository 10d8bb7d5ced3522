#pragma once
#include <optional>
#include <string>

#include "parallel/mesh.h"
#include "parallel/parity/trace.h"

namespace triax::parallel {

/// The first thing in which two runs differ beyond rounding.
struct Difference {
  int64_t step = 0;      ///< from 1; 0: before the first
  std::string what;      ///< `activation`, `loss`, `gradient`, `gradient norm`, `weight`, `moment`;
                         ///< behind it ` on replicas` if ranks that should have the same have not
  std::string name;      ///< of the tensor or layer; empty for loss and norm
  std::string how_much;  ///< largest difference, where, and the bound
  std::string guess;     ///< what that often means; empty: no idea
};

/// What rounding may do. Loss, norm, weights: relative to their own; gradients, moments and
/// activations: to the largest of their kind.
struct ParityBounds {
  double loss = 1e-6, norm = 5e-5, gradient = 1e-5, activation = 1e-5, weight = 1e-5;
  double update = 0;  ///< absolute: what rounding makes of an update, in proportion to the rate
  /// Absolute: of weights whose gradient is rounding alone (such as key biases, whose true gradient
  /// is 0), which AdamW turns into whole updates.
  double noise = 0;
};

/// Compares `run`, on `mesh`, with `reference`, on one rank: within a step, what is computed first
/// is compared first: activations forward, the loss, gradients backward, the norm, then weights and
/// moments as declared. Everything must be there, and equal bit for bit where ranks hold the same.
std::optional<Difference> first_difference(const Trace& reference, const Trace& run,
                                           const MeshShape& mesh, const ParityBounds& bounds);

}  // namespace triax::parallel
