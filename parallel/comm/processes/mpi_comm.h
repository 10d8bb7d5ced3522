#pragma once
#include "parallel/comm/communicator.h"

namespace triax::parallel {

struct MpiOptions {
  double time_limit = Group::default_time_limit();  ///< seconds
  /// Use shared memory within a host. The environment variable TRIAX_WINDOW=off turns it off.
  bool window = default_window();
  /// Sends finish only when received. For tests; also TRIAX_SYNCHRONOUS_SENDS=on.
  bool synchronous_sends = default_synchronous_sends();
  /// More ranks and threads than cores: waiting ranks let others run at once.
  bool crowded = false;
  static bool default_window();
  static bool default_synchronous_sends();
};

/// All processes that MPI started. MPI must be initialised, and `close_mpi_world` be called before
/// it is finalised.
///
/// Ranks of one host move tensors through shared memory: those from `allocator()` in place, by
/// whichever rank waits first; others through small buffers. Between hosts, and where shared memory
/// cannot be had, they exchange slices over MPI. Every wait of a rank advances all it has in
/// flight.
std::unique_ptr<Communicator> mpi_world(MpiOptions options = {});

/// Collective. Frees what MPI holds for `world` and all that was split from it. Their shared
/// memory stays mapped while tensors live in it.
void close_mpi_world(std::unique_ptr<Communicator> world);

}  // namespace triax::parallel
