#pragma once
#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "triax/core/cuda/runtime/context.h"
#include "triax/core/error.h"
#include "triax/core/scoped.h"
#include "triax/parallel/comm/call.h"
#include "triax/parallel/comm/gpu/call_log.h"
#include "triax/parallel/comm/group.h"
#include "triax/parallel/comm/wait.h"

// One communicator of NCCL, and the watchdog of a rank. Not for users; see nccl_comm.h.
namespace triax::parallel {

/// Returns the Error of a call to NCCL: 72 if the other side or the network failed, 71 if the GPU's
/// memory did not suffice, else 70.
Error nccl_error(ncclResult_t result, const char* call, ncclComm_t comm);

/// A communicator of NCCL that never blocks, with the stream that its transfers run on, of high
/// priority. Used by its rank's thread and by the one that watches, who may abort it at any time.
class NcclHandle : Immovable {
 public:
  /// Joins as rank `group.rank` of those that have this `id`, on the current GPU. Collective.
  /// Throws Error 72 if they have not found each other after TRIAX_START_TIMEOUT.
  NcclHandle(Group group, const ncclUniqueId& id);
  /// Splits `parent`: joins those with the same color, which is NCCL_SPLIT_NOCOLOR for a group of
  /// one. Collective.
  NcclHandle(Group group, NcclHandle& parent, int color);
  ~NcclHandle() { close(); }

  const Group& group() const { return *group_; }
  const std::shared_ptr<LoggedGroup>& logged() const { return group_; }
  cudaStream_t stream() const { return stream_.get(); }

  /// Queues NCCL operations of `call` on `stream()`. At the first call NCCL connects the ranks,
  /// which takes until all are here.
  void run(const char* what, const std::function<ncclResult_t(ncclComm_t)>& call);
  /// Returns the error that came up since, if any.
  ncclResult_t async_error();
  /// Returns the Error of what async_error() has returned.
  Error error(ncclResult_t result);
  /// Ends all that is in flight, and the communicator. Does nothing if it has ended.
  void abort() noexcept;
  /// Ends it when all transfers are over; aborts it if an exception unwinds.
  void close() noexcept;

 private:
  void start(const char* what, double time_limit, const std::function<ncclResult_t()>& call);
  void settle(ncclResult_t result, const char* what, double time_limit);
  std::shared_ptr<LoggedGroup> group_;
  int splits_ = 0;
  std::shared_ptr<CUstream_st> stream_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> aborted_ = false;
};

/// Watches the transfers of one rank while its thread and the CPU do other things: NCCL itself
/// waits for ever, and reports errors only if asked. The first transfer that fails, or that makes
/// no progress for its group's time limit after it was started and the one before it on its
/// communicator was over, ends them all. A second thread, which calls nothing of CUDA, sees that
/// the first has stood in such a call for as long: CUDA's driver has locks that another thread may
/// hold. It also writes this rank's calls when another asks for them.
class NcclWatchdog {
 public:
  /// `device`: the GPU of the transfers. `lost`: see NcclOptions.
  NcclWatchdog(int device, std::function<void(const Error&)> lost, std::shared_ptr<CallLog> log);

  /// Adds a communicator that is aborted with the others.
  void add(std::weak_ptr<NcclHandle> comm);
  /// Watches `call`, the `number`th on `comm` (from 1), which is over when `done` is reached.
  void watch(const Call& call, int64_t number, std::shared_ptr<NcclHandle> comm,
             std::shared_ptr<cuda::Event> done);
  /// Returns the calls of this rank.
  CallLog& log() { return *log_; }
  /// Throws the error that ended all transfers, if there was one.
  void check() const;
  /// Aborts all communicators if one has a transfer in flight, for an exception that unwinds: it
  /// may wait for another's, which waits for ranks that never come.
  void abort_in_flight() noexcept;

 private:
  struct InFlight {
    Call call;
    int64_t number;
    std::shared_ptr<NcclHandle> comm;
    std::shared_ptr<cuda::Event> done;
    double since;  // on the clock
  };
  void run(int device, const std::stop_token& over);
  void look(InFlight& f);
  void retire(std::deque<InFlight>& queue);
  void end(Error error, std::unique_lock<std::mutex>& lock);
  void abort_all(std::unique_lock<std::mutex>& lock) noexcept;
  void report_silence(const std::stop_token& over);

  std::function<void(const Error&)> lost_;
  std::shared_ptr<CallLog> log_;
  mutable std::mutex mutex_;
  WaitClock clock_;
  std::condition_variable_any changed_;
  std::vector<std::deque<InFlight>> queues_;  // one for each communicator with something in flight
  std::vector<std::weak_ptr<NcclHandle>> comms_;
  std::unique_ptr<Error> error_;
  std::shared_ptr<const LoggedGroup> stuck_in_;
  std::atomic<bool> ended_ = false, ending_ = false;
  // Since when the GPU has been asked without an answer, on the clock; 0: it is not asked.
  std::atomic<double> asked_ = 0, time_limit_ = 0;
  std::jthread thread_, second_;
};

}  // namespace triax::parallel
