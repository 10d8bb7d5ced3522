#pragma once
#include <functional>

#include "parallel/checkpoint/checkpoint.h"
#include "parallel/train/step.h"

// What one rank holds of a step, tensor by tensor, on the CPU: what traces and replays are made of.
namespace triax::parallel {

/// Sees a piece, whose tensor is valid until it returns.
using SeePiece = std::function<void(const Piece&)>;

/// The tensor, contiguous and on the CPU.
Tensor on_cpu(const Tensor& x);

/// Weights where layers read them, so that a stale copy shows, buffers, and moments from their
/// slots. Collective: weights that are released are gathered.
void each_state(const Step& step, const SeePiece& see);
/// Gradients in their slots, of kind `gradient`: summed over all ranks, times the loss scale.
void each_gradient(const Step& step, const SeePiece& see);

}  // namespace triax::parallel
