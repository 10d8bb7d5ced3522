#pragma once
#include "parallel/comm/processes/lane.h"
#include "parallel/comm/processes/wire.h"

// Operations among processes that share no memory. No MPI here.
namespace triax::parallel {

/// A collective in which every rank sums its slice of what all ranks send it, in rank order, and
/// sends the sum to all: the same bits as any other transport, in all dtypes. Sent in chunks.
/// `number` counts the collectives of the group.
std::shared_ptr<Pending> exchange(std::shared_ptr<Lane> lane, Transfer t, Wire& wire,
                                  int64_t number);

/// A send or a receive. The call travels ahead, so that a receive that does not fit is Error 76.
std::shared_ptr<Pending> message(std::shared_ptr<Lane> lane, Transfer t, Wire& wire);

}  // namespace triax::parallel
