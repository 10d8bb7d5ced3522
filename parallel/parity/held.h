#pragma once
#include <functional>

#include "triax/parallel/checkpoint/checkpoint.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/train/step/step.h"

// One rank's tensors of a step, on the CPU: traces and replays are made of them.
namespace triax::parallel {

/// Runs `rank` on the mesh of `o`, whose ranks are threads of this process.
void on_threads(const TrainOptions& o, const std::function<void(World&)>& rank);

/// Is called with a piece, whose tensor is valid until it returns.
using SeePiece = std::function<void(const Piece&)>;

/// Returns the tensor, contiguous and on the CPU.
Tensor on_cpu(const Tensor& x);

/// Shows weights where layers read them, so that a stale copy shows, buffers, and moments from
/// their slots. Collective: weights that are released are gathered.
void each_state(const Step& step, const SeePiece& see);
/// Shows gradients in their slots, of kind `gradient`: summed over all ranks, times the loss scale.
void each_gradient(const Step& step, const SeePiece& see);

}  // namespace triax::parallel
