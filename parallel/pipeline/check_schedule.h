#pragma once
#include <vector>

#include "nn/layer.h"
#include "parallel/pipeline/schedule.h"

namespace triax::parallel {

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
/// the peak, per stage: the most activations (one micro-batch in one chunk) alive at once. Each
/// lives from its forward to the end of its backward or backward_weight, but for the time between
/// offload and reload; in inference, during its forward.
std::vector<int> check_schedule(const Schedule& schedule, const PipelineShape& shape,
                                nn::Purpose purpose = nn::Purpose::training);

}  // namespace triax::parallel
