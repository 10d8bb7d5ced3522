#pragma once
#include <optional>
#include <string>

#include "examples/minigpt/trace.h"

namespace triax::minigpt {

/// The first thing in which two runs differ beyond rounding.
struct Difference {
  int64_t step = 0;      ///< from 1; 0: before the first
  std::string what;      ///< `activation`, `loss`, `gradient`, `gradient norm`, `weight`, `moment`;
                         ///< behind it ` on replicas` if ranks that should have the same have not
  std::string name;      ///< of the tensor or layer; empty for loss and norm
  std::string how_much;  ///< largest difference, where, and the bound
  std::string guess;     ///< what that often means; empty: no idea
};

/// Bounds for f32. Loss, norm, weights: relative to their own; gradients and activations: to the
/// largest of their kind in the step.
struct ParityBounds {
  double loss = 1e-6, norm = 5e-5, gradient = 1e-5, activation = 1e-5, weight = 1e-5;
  double update = 0;  ///< absolute: what rounding makes of an update, in proportion to the rate
  double noise = 0;   ///< absolute: of the key biases, whose true gradient is 0
};

/// The order in which things are computed: layers forward, parameters as declared.
struct Names {
  std::vector<std::string> layers, parameters;
};
Names names_of(const ModelConfig& c);

/// Compare `run`, on `mesh`, with `reference`, on one rank: within a step, what is computed first
/// is compared first: activations forward, the loss, gradients backward, the norm, then weights and
/// moments as declared. Everything must be there, and equal bit for bit where ranks hold the same.
std::optional<Difference> first_difference(const Trace& reference, const Trace& run,
                                           const Names& names, const MeshConfig& mesh,
                                           const ParityBounds& bounds);

/// The same model and data on one rank: micro-batches and all.
TrainConfig reference_of(TrainConfig config);
/// Both comparisons of correctness: led by the reference, within tight bounds; then running free,
/// where rounding may drift.
std::optional<Difference> compare_with_reference(const TrainConfig& config, const TextData& text,
                                                 const Trace& reference);

/// `minigpt parity`: train `config` on one rank and on its mesh, in this process, print loss and
/// norm of every step and the first difference. Returns ok, or differs. Throws Error.
Exit parity(TrainConfig config);

}  // namespace triax::minigpt
