#pragma once
#include <set>
#include <vector>

#include "nn/sequence.h"
#include "parallel/tensor/tensor_parallel.h"

namespace triax::parallel {

// What a model must be for any mesh to train it, as far as a pass on the meta device shows it. All
// throw Error 78, with the name of the layer or parameter.

using Parameters = std::set<nn::Parameter*>;
/// Those of the modules that it lists.
Parameters used_by(const nn::Layer& layer);

/// Each layer accumulates once a micro-batch: a buffer is one layer's, on one stage.
void check_buffers(nn::Sequence& model);

/// Parameters say what a rank holds of them. Otherwise each rank trains a full copy of its own on
/// its own rows, or never sums gradients.
void check_shards(nn::Module& model, const TensorParallel& tp);

/// `now`: what the backward of `layer` has reached, whose gradients this drops. A layer that is
/// alone on its stage, or with ZeRO-3, has only the parameters of `uses`.
void check_uses(const nn::Layer& layer, const std::vector<nn::Parameter*>& now);

/// A layer uses each parameter, and a gradient has reached it in a backward over all layers.
void check_gradients(nn::Sequence& model, const Parameters& reached);

/// `layer` ran before, so that constants it makes once are there. What it makes of x and `batch`,
/// on the meta device, and still holds after this call is of a micro-batch: with a pipeline, or
/// recomputed, another layer or call would find it of another.
void check_keeps_nothing(const nn::Layer& layer, const Tensor& x, const nn::Batch& batch);

}  // namespace triax::parallel
