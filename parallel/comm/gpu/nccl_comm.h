#pragma once
#include <functional>

#include "triax/core/error.h"
#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

struct NcclOptions {
  /// Called by a thread that watches transfers in flight, when one failed or made no progress for
  /// the group's time limit. Empty: report it and end this process (the launcher ends the others),
  /// since what follows on the GPU would compute with values that never came. If the function
  /// returns, all communicators of this world are aborted, and this rank's next call or wait throws
  /// the error; but not if the GPU's driver does not answer.
  std::function<void(const Error&)> lost = {};
};

/// Sets environment variables of NCCL and CUDA that are not set. CUDA is to load all kernels when
/// it starts: one that is loaded at its first launch may wait for transfers that wait for the peer.
/// It is to give each stream a queue of its own, so that none waits for what was queued on another.
/// NCCL is to connect ranks when groups are made, and not in the middle of a step.
/// Changing the environment is safe only while the process has one thread, so this comes first: a
/// process that a launcher started calls it in `run_main` or World, and `run_worlds`.
void prepare_nccl();

/// Returns the version of NCCL that this process can use, like `2.28.9`. Throws Error 78, with the
/// cure, if there is none.
std::string nccl_version();

/// Collective. Moves tensors on `device` by NCCL, on a stream for each communicator: after what
/// this thread's compute stream held at the call. `wait()` makes the compute stream wait for it;
/// the CPU waits until NCCL has queued a transfer, never for the transfer. Other tensors, barriers
/// and splits go through `world`. Throws Error 78 with the obstacle if there is one.
///
/// An exception that unwinds past a communicator while transfers of this rank are in flight aborts
/// all its communicators: the world is of no use any more.
///
/// Sums are NCCL's: not in rank order, of f16 and bf16 rounded at each addition. The max or min of
/// floats may lose a NaN. NCCL does not compare what ranks call; a call that differs makes no
/// progress.
///
/// **Order of launches.** Communicators of one GPU run side by side, and a kernel of NCCL holds its
/// place on the GPU until its peers have come. NCCL asks that ranks which share two communicators
/// start their calls in one order, or that the kernels of all fit on the GPU at once. Pipeline
/// stages do not: messages between two ranks go over two communicators, one for each direction
/// (parallel/pipeline), and pass each other. So every communicator holds a bounded part of the GPU,
/// less for messages (`Traffic`), and nothing waits for the start of a call on another: the order
/// that NCCL_LAUNCH_ORDER_IMPLICIT asks for stays off, since with it a send that is not received
/// and another behind it hold up all that is called later, and since CUDA calls the events that it
/// rests on a best effort.
std::unique_ptr<Communicator> nccl_world(std::unique_ptr<Communicator> world, Device device,
                                         NcclOptions options = {});

}  // namespace triax::parallel
