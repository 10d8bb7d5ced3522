#pragma once
#include <vector>

#include "triax/optim/slot.h"
#include "triax/parallel/data/buckets/buckets.h"
#include "triax/parallel/data/buckets/held_model.h"

namespace triax::parallel {

/// Returns the matrices of a piece's parameter, one or each of a stack, with their ranges in this
/// rank's slice of the bucket. Where ranks hold parts, all of them have all matrices in the same
/// order, be their ranges empty, and a matrix knows how to gather itself.
std::vector<optim::Matrix> matrices_of(const HeldModel& model, const Bucket& bucket,
                                       const FlatPiece& piece);

}  // namespace triax::parallel
