#pragma once
#include <string>

#include "parallel/pipeline/pipeline.h"

namespace triax::parallel {

/// What one rank of each pipeline stage asked of its groups since the start, per step (validations
/// included), and the peak of each kind of tensor memory. Collective over `mesh.world()`; the text
/// is whole on rank 0.
std::string describe_ledger(const Mesh& mesh, const Pipeline& pipeline, int64_t steps);

}  // namespace triax::parallel
