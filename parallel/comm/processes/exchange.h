#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "triax/parallel/comm/processes/operation_queue.h"

// Operations among processes that share no memory. No MPI here.
namespace triax::parallel {

/// Non-blocking messages between two processes of a group. Messages of one sender and tag arrive in
/// the order sent; the receiver knows the size, a longer message is an error.
class PointToPoint {
 public:
  virtual ~PointToPoint() = default;
  /// Asks whether a transfer that has begun is over. Throws Error 72 if it failed.
  using Request = std::function<bool()>;
  virtual Request send(const void* data, size_t bytes, int to, int tag) = 0;
  virtual Request receive(void* data, size_t bytes, int from, int tag) = 0;
};

/// Moves the data of a collective in place of an exchange among all its ranks.
class Mover {
 public:
  virtual ~Mover() = default;
  /// Goes on without blocking; true when finished. Throws the error that ends it.
  virtual bool step() = 0;
  /// Returns the ranks of the group that it waits for.
  virtual std::vector<int> missing() const = 0;
};

/// Starts a collective in which every rank sums its slice of the data of all ranks, in rank order,
/// and sends the sum to all: the same bits as any other transport, in all dtypes. Sent in chunks.
/// `number` counts the collectives of the group. `mover`, if there is one, moves the data instead
/// when all have called alike.
std::shared_ptr<QueuedOperation> exchange(std::shared_ptr<OperationQueue> queue, Transfer t,
                                          PointToPoint& p2p, int64_t number,
                                          std::shared_ptr<Mover> mover = {});

/// Starts a send or a receive. The call travels ahead, so a receive that does not fit is Error 76.
std::shared_ptr<QueuedOperation> message(std::shared_ptr<OperationQueue> queue, Transfer t,
                                         PointToPoint& p2p);

// Collectives of a group that spans hosts, in two levels.

/// A group of hosts with `within` ranks each, neighbours in it: rank = host * within + place.
struct HostLevels {
  using Start = std::function<std::shared_ptr<QueuedOperation>(Transfer)>;
  int within, hosts;
  int host, place;                       ///< of this rank
  Start start_within, start_across;      ///< among ranks of this host; among those of this place
  std::shared_ptr<Allocator> allocator;  ///< of memory in which ranks of a host need no copies
};

/// Returns the mover of `t`'s data when all ranks have called alike. Ranks of a host reduce in its
/// memory first, and each exchanges its share with the other hosts, so that between two hosts every
/// byte goes once, on as many connections as a host has ranks. Sums are made in rank order on each
/// host, then in the order of hosts; each of the two rounds f16 and bf16. Null for collectives
/// other than all_reduce, reduce_scatter and all_gather, and for tensors that are too small to gain
/// by it. Its first step() allocates its memory.
std::shared_ptr<Mover> mover_across_hosts(std::shared_ptr<const HostLevels> levels, Transfer t);

}  // namespace triax::parallel
