#pragma once
#include <string>

#include "examples/minigpt/replica.h"

namespace triax::minigpt {

/// What one rank of each pipeline stage asked of its groups since the start, per step (validations
/// included), and the peak of each kind of tensor memory. Collective over `mesh.world()`; the text
/// is whole on rank 0.
std::string describe_ledger(const parallel::Mesh& mesh, const Replica& replica, int64_t steps);

}  // namespace triax::minigpt
