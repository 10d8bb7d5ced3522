#include "triax/parallel/comm/gpu/nccl_handle.h"

#include <algorithm>
#include <bit>
#include <exception>

#include "triax/core/check.h"
#include "triax/core/cuda/runtime/status.h"

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

/// Returns the bound on a transfer's processors. NCCL takes a power of two for messages, and rounds
/// up.
int most_processors(const Traffic& traffic) {
  int device = 0, all = 0;
  cuda::require(cudaGetDevice(&device), "cudaGetDevice");
  cuda::require(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, device),
                "cudaDeviceGetAttribute");
  auto part = unsigned(std::max(1, all / traffic.part));
  return int(traffic.messages ? std::bit_floor(part) : part);
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
  const char* told = comm ? ncclGetLastError(comm) : nullptr;
  std::string_view last = told ? told : "";
  bool full = last.find("out of memory") != last.npos || last.starts_with("Failed to CUDA");
  return Error(
      full        ? Exit::memory
      : elsewhere ? Exit::peer_lost
                  : Exit::internal,
      fmt::format("nccl: {}: {}{}{}\n  {}", call, ncclGetErrorString(result),
                  last.empty() ? "" : "\n  ", last,
                  full ? "NCCL's buffers no longer fit on the GPU: each group of ranks has its "
                         "own.\n  Take a smaller --micro-batch, --recompute block or a higher "
                         "--zero."
                       : "NCCL_DEBUG=INFO in the environment says more."));
}

NcclHandle::NcclHandle(Group group, const ncclUniqueId& id)
    : group_(std::make_shared<LoggedGroup>(std::move(group), "0")), stream_(urgent_stream()) {
  ncclConfig_t config = config_of(*group_);
  start("ncclCommInitRankConfig", Deadline::of_start(),
        [&] { return ncclCommInitRankConfig(&comm_, group_->size(), id, group_->rank, &config); });
}

NcclHandle::NcclHandle(Group group, NcclHandle& parent, int color)
    : group_(std::make_shared<LoggedGroup>(
          std::move(group), fmt::format("{}.{}", parent.group_->path, ++parent.splits_))),
      stream_(urgent_stream()) {
  if (!parent.comm_) return;  // a group of one
  ncclConfig_t config = config_of(*group_);
  parent.run("ncclCommSplit", [&](ncclComm_t from) {
    return ncclCommSplit(from, color, group_->rank, &comm_, &config);
  });
  if (comm_) settle(ncclInProgress, "ncclCommSplit", group_->time_limit);
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
  start(what, group_->time_limit, [&] { return call(comm_); });
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
           what, group_->str(), group_->members[size_t(group_->rank)], time_limit);
    }
    result = async_error();
  }
  std::lock_guard guard(mutex_);
  check_input(!aborted_, Exit::peer_lost, "nccl: {}: the communicator {} was aborted", what,
              group_->str());
  if (result != ncclSuccess) throw nccl_error(result, what, comm_);
}

ncclResult_t NcclHandle::async_error() {
  std::lock_guard guard(mutex_);
  ncclResult_t result = ncclSuccess;
  if (aborted_ || !comm_) return result;
  ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
  return asked == ncclSuccess ? result : asked;
}

Error NcclHandle::error(ncclResult_t result) {
  std::lock_guard guard(mutex_);
  return nccl_error(result, "asynchronous", aborted_ ? nullptr : comm_);
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
                  "  A rank has ended early, or hangs. TRIAX_TIMEOUT (seconds) sets the limit.",
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

NcclWatchdog::NcclWatchdog(int device, std::function<void(const Error&)> lost,
                           std::shared_ptr<CallLog> log)
    : lost_(std::move(lost)),
      log_(std::move(log)),
      thread_([this, device](const std::stop_token& over) { run(device, over); }),
      second_([this](const std::stop_token& over) { report_silence(over); }) {}

void NcclWatchdog::add(std::weak_ptr<NcclHandle> comm) {
  std::lock_guard guard(mutex_);
  std::erase_if(comms_, [](auto& c) { return c.expired(); });
  if (auto one = comm.lock()) time_limit_ = std::max(time_limit_.load(), one->group().time_limit);
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
      asked_ = clock_.seconds();
      for (auto& queue : queues_) retire(queue);
      asked_ = 0;
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
    throw failed(f.comm->error(result), group, f.call);
  if (clock_.seconds() - f.since <= group.time_limit) return;
  stuck_in_ = f.comm->logged();
  throw stuck(group, f.call, f.number);
}

/// Ends all. The abort wakes whoever waits for the GPU, and they must then find the error.
void NcclWatchdog::end(Error error, std::unique_lock<std::mutex>& lock) {
  ending_ = true;
  if (stuck_in_) {
    lock.unlock();
    error = CallLog::compare(log_, error, stuck_in_);
    lock.lock();
  }
  error_ = std::make_unique<Error>(error);
  ended_ = true;
  lock.unlock();
  lost_(error);
  lock.lock();
  abort_all(lock);
}

void NcclWatchdog::abort_in_flight() noexcept {
  std::unique_lock lock(mutex_);
  try {
    for (auto& queue : queues_)
      for (auto& f : queue)
        if (!f.done->done()) return abort_all(lock);
  } catch (const Error&) {  // the GPU has failed
    abort_all(lock);
  }
}

/// Aborts all at once: an abort waits for what its communicator has in flight, which may stand
/// behind another's.
void NcclWatchdog::abort_all(std::unique_lock<std::mutex>& lock) noexcept {
  auto comms = comms_;
  queues_.clear();
  lock.unlock();
  ncclGroupStart();
  for (auto& weak : comms)
    if (auto comm = weak.lock()) comm->abort();
  ncclGroupEnd();
  lock.lock();
}

void NcclWatchdog::report_silence(const std::stop_token& over) {
  WaitClock clock;
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any never;
  double asked = 0, since = 0;
  int64_t looks = 0;
  while (!never.wait_for(lock, over, between_looks, [&] { return over.stop_requested(); })) {
    double now = clock.seconds(), last = asked_;
    if (last == 0 || last != asked) asked = last, since = now;
    if (++looks % 50 == 0) log_->answer();
    if (last == 0 || now - since <= time_limit_ || ending_) continue;
    return lost_(Error(Exit::peer_lost,
                       fmt::format("nccl: the GPU's driver has not answered for {} s\n"
                                   "  Another thread of this rank waits for the GPU in a call that "
                                   "holds the driver.\n  TRIAX_TIMEOUT (seconds) sets the limit.",
                                   time_limit_.load())));
  }
}

}  // namespace triax::parallel
