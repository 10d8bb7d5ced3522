#include "parallel/comm/gpu/nccl_handle.h"

#include <exception>

#include "core/check.h"
#include "core/cuda/status.h"
#include "parallel/comm/wait.h"

namespace triax::parallel {
namespace {

std::shared_ptr<CUstream_st> urgent_stream() {
  int lowest = 0, highest = 0;
  cuda::require(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  cuda::require(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest),
                "cudaStreamCreateWithPriority");
  return {stream, [](cudaStream_t s) { cudaStreamDestroy(s); }};
}

ncclConfig_t config_of(const Group& group) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = group.name.c_str();
  return config;
}

}  // namespace

Error nccl_error(ncclResult_t result, const char* call, ncclComm_t comm) {
  bool elsewhere = result == ncclRemoteError || result == ncclSystemError;
  const char* last = comm ? ncclGetLastError(comm) : nullptr;
  return Error(
      elsewhere ? Exit::peer_lost : Exit::internal,
      fmt::format("nccl: {}: {}{}{}\n  NCCL_DEBUG=INFO in the environment says more.", call,
                  ncclGetErrorString(result), last && *last ? "\n  " : "", last ? last : ""));
}

NcclHandle::NcclHandle(Group group, const ncclUniqueId& id)
    : group_(std::move(group)), stream_(urgent_stream()) {
  ncclConfig_t config = config_of(group_);
  start("ncclCommInitRankConfig", Deadline::of_start(),
        [&] { return ncclCommInitRankConfig(&comm_, group_.size(), id, group_.rank, &config); });
}

NcclHandle::NcclHandle(Group group, NcclHandle& parent, int color)
    : group_(std::move(group)), stream_(urgent_stream()) {
  if (!parent.comm_) return;  // a group of one
  ncclConfig_t config = config_of(group_);
  parent.run("ncclCommSplit", [&](ncclComm_t from) {
    return ncclCommSplit(from, color, group_.rank, &comm_, &config);
  });
  if (comm_) settle(ncclInProgress, "ncclCommSplit", group_.time_limit);
}

void NcclHandle::close() noexcept {
  if (!comm_ || aborted_) return;
  if (std::uncaught_exceptions()) return abort();
  try {
    cuda::require(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
    run("ncclCommFinalize", [](ncclComm_t comm) { return ncclCommFinalize(comm); });
  } catch (const Error&) {
    return abort();
  }
  std::lock_guard guard(mutex_);
  if (!aborted_) ncclCommDestroy(std::exchange(comm_, nullptr));
}

void NcclHandle::run(const char* what, const std::function<ncclResult_t(ncclComm_t)>& call) {
  start(what, group_.time_limit, [&] { return call(comm_); });
}

void NcclHandle::start(const char* what, double time_limit,
                       const std::function<ncclResult_t()>& call) {
  ncclResult_t result = ncclSuccess;
  {
    std::lock_guard guard(mutex_);
    if (!aborted_) result = call();
  }
  settle(result, what, time_limit);
}

/// A communicator that does not block may still be at work on a call when it returns, with its
/// kernel not yet in the stream.
void NcclHandle::settle(ncclResult_t result, const char* what, double time_limit) {
  if (result == ncclSuccess && !aborted_) [[likely]]
    return;
  for (Backoff backoff(false, time_limit); result == ncclInProgress;) {
    if (!backoff.pause()) {
      abort();
      fail(Exit::peer_lost,
           "nccl: {} of group {} on rank {}: not all ranks came within {} s\n"
           "  One has ended early, hangs, or is on a host that cannot be reached.\n"
           "  TRIAX_START_TIMEOUT and TRIAX_TIMEOUT (seconds) set the limits at the start and "
           "later.",
           what, group_.str(), group_.members[size_t(group_.rank)], time_limit);
    }
    result = async_error();
  }
  std::lock_guard guard(mutex_);
  check_input(!aborted_, Exit::peer_lost, "nccl: {}: the communicator {} was aborted", what,
              group_.str());
  if (result != ncclSuccess) throw nccl_error(result, what, comm_);
}

ncclResult_t NcclHandle::async_error() {
  std::lock_guard guard(mutex_);
  ncclResult_t result = ncclSuccess;
  if (aborted_ || !comm_) return result;
  ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
  return asked == ncclSuccess ? result : asked;
}

void NcclHandle::abort() noexcept {
  std::lock_guard guard(mutex_);
  if (comm_ && !aborted_.exchange(true)) ncclCommAbort(comm_);
}

}  // namespace triax::parallel
