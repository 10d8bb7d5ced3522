#pragma once
#include <vector>

#include "triax/nn/layer.h"
#include "triax/parallel/pipeline/schedule.h"

namespace triax::parallel {

/// The most micro-batches (each in one chunk) whose activations a stage keeps at once. What is in
/// host memory, from offload to reload, does not count.
struct Kept {
  int live = 0;     ///< from forward until the gradient of the input
  int held = 0;     ///< from forward until the gradients of the weights
  int waiting = 0;  ///< between these, in schedules that defer the latter
  bool operator==(const Kept&) const = default;
};
/// Returns that of a stage with this list. With `layers`, the layers of each of its chunks, a
/// micro-batch counts once for each layer of its chunk.
Kept most_kept(const Actions& list, const std::vector<int>& layers = {});

/// Proves, over the lists of all stages, that `schedule` is
///
/// * complete: every micro-batch passes every chunk of every stage once forward and, in training,
///   once backward, whole or as input and then weight;
/// * ordered: backward after forward, weight after input; an offload between them, if there is one,
///   with its reload after it;
/// * matched: what arrives on a link is what the receiver takes next, so that no micro-batch is
///   taken for another;
/// * free of deadlock, however little the transport buffers (`simulate`).
///
/// Throws Error 78 that names stage, position in its list, action and what was expected. Returns
/// the peak, per stage: the most activations alive at once (Kept::held); in inference, each lives
/// during its forward.
std::vector<int> check_schedule(const Schedule& schedule, const PipelineShape& shape,
                                nn::Purpose purpose = nn::Purpose::training);

}  // namespace triax::parallel
