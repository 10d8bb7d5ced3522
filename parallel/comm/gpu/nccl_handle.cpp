#include "parallel/comm/gpu/nccl_handle.h"

#include <algorithm>
#include <exception>

#include "core/check.h"
#include "core/cuda/runtime/status.h"

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

/// Returns how many of the GPU's processors a transfer may hold until its peers come. Those of all
/// groups of a rank fit beside each other (world, mesh, ends and statistics; up to eight channels
/// of a pipeline), so none waits for another's peers, in whatever order ranks start them.
int most_processors(Traffic traffic) {
  int device = 0, all = 0;
  cuda::require(cudaGetDevice(&device), "cudaGetDevice");
  cuda::require(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, device),
                "cudaDeviceGetAttribute");
  return std::max(1, all / (traffic == Traffic::messages ? 32 : 8));
}

ncclConfig_t config_of(const Group& group) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = most_processors(group.traffic);  // NCCL_MAX_CTAS counts instead, if it is set
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

/// Waits until a call is done. A communicator that does not block may still be at work on it when
/// it returns, with its kernel not yet in the stream.
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

namespace {

constexpr auto between_looks = std::chrono::milliseconds(20);

Error stuck(const Group& group, const Call& call, int64_t number) {
  return Error(
      Exit::peer_lost,
      fmt::format("{}: no progress in group {} for {} s, seen by rank {} at its call {} there\n"
                  "  called at {}\n"
                  "  A rank has ended early, hangs, or called something else, which NCCL does not "
                  "see.\n"
                  "  --comm mpi compares the calls and names the ranks. TRIAX_TIMEOUT (seconds) "
                  "sets the limit.",
                  describe(call), group.str(), group.time_limit, group.members[size_t(group.rank)],
                  number, str(call.place)),
      str(call.place));
}

Error failed(const Error& why, const Group& group, const Call& call) {
  return Error(
      why.code(),
      fmt::format("{} in group {} on rank {}, called at {}\n  {}", describe(call), group.str(),
                  group.members[size_t(group.rank)], str(call.place), why.what()),
      str(call.place));
}

}  // namespace

NcclWatchdog::NcclWatchdog(int device, std::function<void(const Error&)> lost)
    : lost_(std::move(lost)),
      thread_([this, device](const std::stop_token& over) { run(device, over); }) {}

void NcclWatchdog::add(std::weak_ptr<NcclHandle> comm) {
  std::lock_guard guard(mutex_);
  std::erase_if(comms_, [](auto& c) { return c.expired(); });
  comms_.push_back(std::move(comm));
}

void NcclWatchdog::watch(const Call& call, int64_t number, std::shared_ptr<NcclHandle> comm,
                         std::shared_ptr<cuda::Event> done) {
  std::lock_guard guard(mutex_);
  auto queue =
      std::find_if(queues_.begin(), queues_.end(), [&](auto& l) { return l.front().comm == comm; });
  if (queue == queues_.end()) queue = queues_.insert(queue, std::deque<InFlight>());
  queue->push_back({call, number, std::move(comm), std::move(done), clock_.seconds()});
  if (queues_.size() == 1 && queue->size() == 1) changed_.notify_one();
}

void NcclWatchdog::check() const {
  if (!ended_) [[likely]]
    return;
  std::lock_guard guard(mutex_);
  throw Error(*error_);
}

void NcclWatchdog::run(int device, const std::stop_token& over) {
  std::unique_lock lock(mutex_);
  try {
    cuda::require(cudaSetDevice(device), "cudaSetDevice");
    while (!over.stop_requested() && !ended_) {
      if (queues_.empty()) changed_.wait(lock, over, [&] { return !queues_.empty(); });
      else changed_.wait_for(lock, over, between_looks, [] { return false; });
      for (auto& queue : queues_) retire(queue);
      std::erase_if(queues_, [](auto& queue) { return queue.empty(); });
    }
  } catch (const Error& e) {
    end(e, lock);
  }
}

/// Drops transfers that are over, and looks at the first that is not.
void NcclWatchdog::retire(std::deque<InFlight>& queue) {
  while (!queue.empty()) {
    InFlight& first = queue.front();
    if (!first.done->done()) return look(first);
    queue.pop_front();
    if (!queue.empty()) queue.front().since = std::max(queue.front().since, clock_.seconds());
  }
}

void NcclWatchdog::look(InFlight& f) {
  const Group& group = f.comm->group();
  ncclResult_t result = f.comm->async_error();
  if (result != ncclSuccess && result != ncclInProgress)
    throw failed(nccl_error(result, "asynchronous", nullptr), group, f.call);
  if (clock_.seconds() - f.since > group.time_limit) throw stuck(group, f.call, f.number);
}

/// Ends all. The abort wakes whoever waits for the GPU, and they must then find the error.
void NcclWatchdog::end(const Error& error, std::unique_lock<std::mutex>& lock) {
  error_ = std::make_unique<Error>(error);
  ended_ = true;
  auto comms = comms_;
  lock.unlock();
  lost_(error);
  for (auto& weak : comms)
    if (auto comm = weak.lock()) comm->abort();
  lock.lock();
  queues_.clear();
}

}  // namespace triax::parallel
