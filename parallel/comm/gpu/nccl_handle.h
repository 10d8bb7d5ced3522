#pragma once
#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <functional>
#include <mutex>

#include "core/cuda/context.h"
#include "core/error.h"
#include "parallel/comm/group.h"

// One communicator of NCCL. Not for users; see nccl_comm.h.
namespace triax::parallel {

/// The Error of a call to NCCL: 72 where the other side or the network failed, else 70.
Error nccl_error(ncclResult_t result, const char* call, ncclComm_t comm);

/// A communicator of NCCL that never blocks, with the stream that its transfers run on, of high
/// priority. Used by its rank's thread and by the one that watches, who may abort it at any time.
class NcclHandle {
 public:
  /// Collective: rank `group.rank` of those that have this `id`, on the current GPU. Throws Error
  /// 72 if they have not found each other after TRIAX_START_TIMEOUT.
  NcclHandle(Group group, const ncclUniqueId& id);
  /// Collective over `parent`: those with the same color, which is NCCL_SPLIT_NOCOLOR for a group
  /// of one.
  NcclHandle(Group group, NcclHandle& parent, int color);
  ~NcclHandle() { close(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  const Group& group() const { return group_; }
  cudaStream_t stream() const { return stream_.get(); }

  /// Queues what `call` asks of NCCL, on `stream()`. The first time NCCL connects the ranks, which
  /// takes until they all came here.
  void run(const char* what, const std::function<ncclResult_t(ncclComm_t)>& call);
  /// What went wrong since, if anything.
  ncclResult_t async_error();
  /// Ends all that is in flight, and the communicator. Nothing if it has ended.
  void abort() noexcept;
  /// Ends it when all in flight is over; aborts it if an exception unwinds.
  void close() noexcept;

 private:
  void start(const char* what, double time_limit, const std::function<ncclResult_t()>& call);
  void settle(ncclResult_t result, const char* what, double time_limit);
  Group group_;
  std::shared_ptr<CUstream_st> stream_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> aborted_ = false;
};

}  // namespace triax::parallel
