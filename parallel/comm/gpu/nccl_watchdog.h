#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "parallel/comm/call.h"
#include "parallel/comm/gpu/nccl_handle.h"
#include "parallel/comm/wait.h"

// What one rank has in flight over NCCL. Not for users; see nccl_comm.h.
namespace triax::parallel {

/// Looks after the transfers of one rank while its thread and the CPU do other things: NCCL itself
/// waits for ever, and says what went wrong only if asked. The first transfer that fails, or that
/// has made no progress for its group's time limit since it was started and the one before it on
/// its communicator was over, ends them all.
class NcclWatchdog {
 public:
  /// `device`: the GPU of the transfers. `lost` as NcclOptions has it.
  NcclWatchdog(int device, std::function<void(const Error&)> lost);

  /// To be aborted with the others.
  void add(std::weak_ptr<NcclHandle> comm);
  /// `call`, the `number`th on `comm` (from 1), is over when `done` is reached.
  void watch(const Call& call, int64_t number, std::shared_ptr<NcclHandle> comm,
             std::shared_ptr<cuda::Event> done);
  /// Throws what ended all transfers, if something did.
  void check() const;

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
  void end(const Error& error, std::unique_lock<std::mutex>& lock);

  std::function<void(const Error&)> lost_;
  mutable std::mutex mutex_;
  WaitClock clock_;
  std::condition_variable_any changed_;
  std::vector<std::deque<InFlight>> queues_;  // one for each communicator with something in flight
  std::vector<std::weak_ptr<NcclHandle>> comms_;
  std::unique_ptr<Error> error_;
  std::atomic<bool> ended_ = false;
  std::jthread thread_;
};

}  // namespace triax::parallel
