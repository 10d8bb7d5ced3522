#pragma once
#include <optional>

#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

struct MpiOptions {
  double time_limit = Group::default_time_limit();  ///< seconds
  /// True if ranks and threads outnumber cores: waiting ranks then let others run at once.
  bool crowded = false;
  std::optional<int> ranks = {};  ///< WorldOptions::mpi
};

/// Returns the communicator of all processes that MPI started, or of `ranks`. MPI must be
/// initialised, and `close_mpi_world` be called before it is finalised.
///
/// Ranks of one host move tensors through shared memory: those from `allocator()` in place, by
/// whichever rank waits first; others through small buffers. Between hosts, and without shared
/// memory, they exchange slices over MPI; large tensors in two levels, if hosts have equally many
/// ranks of a group (across_hosts.h). Every wait of a rank advances all its operations in flight.
/// For tests the environment variable TRIAX_WINDOW=off turns shared memory off, with
/// TRIAX_SYNCHRONOUS_SENDS=on sends finish only when received, and TRIAX_RANKS_PER_HOST=N makes N
/// ranks a host.
std::unique_ptr<Communicator> mpi_world(MpiOptions options = {});

/// Frees what MPI holds for `world` and everything split from it. Their shared memory stays mapped
/// while tensors live in it. Collective.
void close_mpi_world(std::unique_ptr<Communicator> world);

}  // namespace triax::parallel
