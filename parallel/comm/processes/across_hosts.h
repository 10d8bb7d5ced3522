#pragma once
#include <functional>
#include <memory>

#include "parallel/comm/processes/exchange.h"

// Collectives of a group that spans hosts, in two levels. No MPI here.
namespace triax::parallel {

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
