#include "parallel/comm/gpu/nccl_watchdog.h"

#include <algorithm>

#include "core/check.h"
#include "core/cuda/status.h"

namespace triax::parallel {
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

/// Forgets what is over.
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

/// Whoever waits for the GPU goes on when the communicators are aborted, and must find the error.
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
