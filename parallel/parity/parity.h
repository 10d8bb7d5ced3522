#pragma once
#include "parallel/parity/compare.h"

namespace triax::parallel {

/// The same model and data on one rank: one micro-batch, no recomputation, nothing sharded.
TrainOptions reference_of(TrainOptions o);

/// Both comparisons of a mesh with `reference`, a trace of reference_of(o): led by the reference,
/// within tight bounds; then running free, where rounding may drift, but where what a step leaves
/// behind counts (a forgotten publish shows here alone).
std::optional<Difference> compare_with_reference(const Task& task, const TrainOptions& o,
                                                 const Trace& reference);

/// Trains `task` on one rank and on the mesh of `o` for `o.steps` steps, with ranks that are
/// threads of this process; prints loss and norm of every step and the first difference:
/// activations of every layer, loss, gradients, norm, weights, optimizer state. Returns ok or
/// differs. Throws Error.
Exit parity(const Task& task, TrainOptions o);

}  // namespace triax::parallel
