#pragma once
#include "parallel/comm/communicator.h"

namespace triax::parallel {

struct MpiOptions {
  double time_limit = Group::default_time_limit();  ///< seconds
  /// More ranks and threads than cores: waiting ranks let others run at once.
  bool crowded = false;
};

/// All processes that MPI started. MPI must be initialised, and `close_mpi_world` be called before
/// it is finalised.
///
/// Ranks of one host move tensors through shared memory: those from `allocator()` in place, by
/// whichever rank waits first; others through small buffers. Between hosts, and where shared memory
/// cannot be had, they exchange slices over MPI; large tensors in two levels, if hosts have equally
/// many ranks of a group (across_hosts.h). Every wait of a rank advances all it has in flight. For
/// tests the environment variable TRIAX_WINDOW=off turns shared memory off, with
/// TRIAX_SYNCHRONOUS_SENDS=on sends finish only when received, and TRIAX_RANKS_PER_HOST=N makes N
/// ranks a host.
std::unique_ptr<Communicator> mpi_world(MpiOptions options = {});

/// Collective. Frees what MPI holds for `world` and all that was split from it. Their shared
/// memory stays mapped while tensors live in it.
void close_mpi_world(std::unique_ptr<Communicator> world);

}  // namespace triax::parallel
