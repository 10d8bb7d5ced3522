#pragma once
#include "parallel/comm/processes/operation_queue.h"
#include "parallel/comm/processes/point_to_point.h"

// Operations among processes that share no memory. No MPI here.
namespace triax::parallel {

/// A collective in which every rank sums its slice of what all ranks send it, in rank order, and
/// sends the sum to all: the same bits as any other transport, in all dtypes. Sent in chunks.
/// `number` counts the collectives of the group.
std::shared_ptr<QueuedOperation> exchange(std::shared_ptr<OperationQueue> queue, Transfer t,
                                          PointToPoint& p2p, int64_t number);

/// A send or a receive. The call travels ahead, so that a receive that does not fit is Error 76.
std::shared_ptr<QueuedOperation> message(std::shared_ptr<OperationQueue> queue, Transfer t,
                                         PointToPoint& p2p);

}  // namespace triax::parallel
