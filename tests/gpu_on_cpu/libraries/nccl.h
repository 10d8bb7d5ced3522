#pragma once
#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

/// NCCL made of CPU threads, for tests: definitions of its functions that triax calls, for ranks
/// that are threads of one process or processes of one host (nccl_board.h). A transfer stands in
/// its stream until all its ranks' streams have come to it. As with communicators that do not
/// block, a call may only have begun when it returns: another thread puts it into the stream later,
/// into its graph while that is captured, and only then the communicator says that it is done. A
/// message waits for its receiver, a transfer for the processors that it holds until it is over,
/// and NCCL_LAUNCH_ORDER_IMPLICIT=1 counts (nccl_kernel.h). GPU_ON_CPU_NCCL in the environment is
/// the version until behave() says another; more variables: ../README.md.
namespace triax::gpu_on_cpu::nccl {

/// What a rank asked of NCCL.
struct Called {
  std::string function, comm;
  int rank, size;  ///< of the communicator
  int world_rank;  ///< of the communicator that it was split from in the end
  size_t count = 0;
  int peer = -1;  ///< root, or the other side of a message
  bool operator==(const Called&) const = default;
};

/// In the order in which each rank called.
std::vector<Called> calls();

/// What the library does from now on.
struct Behaviour {
  int version = NCCL_VERSION_CODE;
  bool hang = false;                 ///< transfers that start never end
  ncclResult_t fails = ncclSuccess;  ///< what communicators say has happened meanwhile
  const char* last_error = "";       ///< the last warning of NCCL's log
};
/// Also forgets calls().
void behave(const Behaviour& behaviour);

/// Communicators that were made, and neither destroyed nor aborted.
int alive();
/// Transfers that have started and are not over.
int holding();
/// Communicators that were aborted, since behave().
int aborted();

}  // namespace triax::gpu_on_cpu::nccl
