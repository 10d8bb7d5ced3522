#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "triax/nn/layer.h"
#include "triax/parallel/pipeline/schedule.h"

namespace triax::parallel {

/// Cuts items of these costs, in their order, into `parts` pieces, and returns how many items each
/// has. The dearest piece is as cheap as it can be; of the ways to do that, the one with the most
/// even pieces (least sum of squares); of those, the one with more in later pieces, since early
/// stages of a pipeline hold more activations. No piece is empty while there are enough items.
/// By dynamic programming, in items^2 * parts steps. Throws unless parts >= 1 and each cost is
/// finite and not negative.
std::vector<int64_t> partition(const std::vector<double>& costs, int parts);

/// Partitions over the virtual stages of `shape`, where a stage has several chunks: partition(),
/// then single layers move from one virtual stage to another as long as that lowers the sum of
/// squares of the stages' costs over all their chunks, or leaves it and lowers that of the virtual
/// stages. Returns partition() itself unless the dearest stage becomes cheaper.
std::vector<int64_t> partition_chunks(const std::vector<double>& costs, const PipelineShape& shape);

/// Parses a user's placement `3,3,2,4`: how many of the model's `blocks` each virtual stage holds,
/// in order; none is allowed. Throws Error 78, with one that would do, unless there is one count
/// per virtual stage and they add up.
std::vector<int64_t> parse_placement(const std::string& text, const PipelineShape& shape,
                                     int64_t blocks);

/// Returns the layers of one stage: chunk c is `shape.virtual_stage(stage, c)`. `counts` says how
/// many of the model's layers each virtual stage holds, in order. Throws unless there is one for
/// each virtual stage and they add up.
std::vector<nn::Layers> layers_of_stage(const nn::Layers& model, const std::vector<int64_t>& counts,
                                        const PipelineShape& shape, int stage);

}  // namespace triax::parallel
