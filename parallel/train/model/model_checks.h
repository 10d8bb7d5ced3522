#pragma once
#include <set>
#include <vector>

#include "triax/nn/sequence.h"
#include "triax/parallel/tensor/tensor_parallel.h"

namespace triax::parallel {

// Checks that any mesh can train a model, as far as a pass on the meta device shows it. All throw
// Error 78, with the name of the layer or parameter.

using Parameters = std::set<nn::Parameter*>;
/// Returns the parameters of the modules that it lists.
Parameters used_by(const nn::Layer& layer);

/// Checks that each buffer belongs to one layer, on one stage: it accumulates once a micro-batch.
void check_buffers(nn::Sequence& model);

/// Checks that parameters say what a rank holds of them. Otherwise each rank trains a full copy of
/// its own on its own rows, or never sums gradients.
void check_shards(nn::Module& model, const TensorParallel& tp);

/// Checks that `layer` lists in `uses` the parameters `now` that its backward has reached, whose
/// gradients this drops: alone on its stage, or with ZeRO-3, it has no others.
void check_uses(const nn::Layer& layer, const std::vector<nn::Parameter*>& now);

/// Checks that a layer uses each parameter, and that a backward over all layers reaches each.
void check_gradients(nn::Sequence& model, const Parameters& reached);

/// Checks that `layer` keeps no tensor that it makes of x and `batch`, on the meta device, after
/// this call: with a pipeline, or recomputed, another layer or call would find that of another
/// micro-batch. It ran before, so that constants it makes once are there.
void check_keeps_nothing(const nn::Layer& layer, const Tensor& x, const nn::Batch& batch);

}  // namespace triax::parallel
