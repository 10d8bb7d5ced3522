#include "parallel/comm/gpu/nccl_watch.h"

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

NcclWatch::NcclWatch(int device, std::function<void(const Error&)> lost)
    : lost_(std::move(lost)), thread_([this, device] { run(device); }) {}

NcclWatch::~NcclWatch() {
  {
    std::lock_guard guard(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void NcclWatch::add(std::weak_ptr<NcclHandle> comm) {
  std::lock_guard guard(mutex_);
  std::erase_if(comms_, [](auto& c) { return c.expired(); });
  comms_.push_back(std::move(comm));
}

void NcclWatch::watch(const Call& call, int64_t number, std::shared_ptr<NcclHandle> comm,
                      std::shared_ptr<cuda::Event> done) {
  std::lock_guard guard(mutex_);
  auto line =
      std::find_if(lines_.begin(), lines_.end(), [&](auto& l) { return l.front().comm == comm; });
  if (line == lines_.end()) line = lines_.insert(line, std::deque<Flight>());
  line->push_back({call, number, std::move(comm), std::move(done), Clock::now()});
  if (lines_.size() == 1 && line->size() == 1) changed_.notify_one();
}

void NcclWatch::check() const {
  if (!ended_) [[likely]]
    return;
  std::lock_guard guard(mutex_);
  throw Error(*error_);
}

void NcclWatch::run(int device) {
  std::unique_lock lock(mutex_);
  try {
    cuda::require(cudaSetDevice(device), "cudaSetDevice");
    while (!over_ && !ended_) {
      if (lines_.empty()) changed_.wait(lock, [&] { return over_ || !lines_.empty(); });
      else changed_.wait_for(lock, between_looks, [&] { return over_; });
      for (auto& line : lines_) retire(line);
      std::erase_if(lines_, [](auto& line) { return line.empty(); });
    }
  } catch (const Error& e) {
    end(e, lock);
  }
}

/// Forgets what is over.
void NcclWatch::retire(std::deque<Flight>& line) {
  while (!line.empty()) {
    Flight& first = line.front();
    if (!first.done->done()) return look(first);
    line.pop_front();
    if (!line.empty()) line.front().since = std::max(line.front().since, Clock::now());
  }
}

void NcclWatch::look(Flight& f) {
  const Group& group = f.comm->group();
  ncclResult_t result = f.comm->async_error();
  if (result != ncclSuccess && result != ncclInProgress)
    throw failed(nccl_error(result, "asynchronous", nullptr), group, f.call);
  std::chrono::duration<double> waited = Clock::now() - f.since;
  if (waited.count() > group.time_limit) throw stuck(group, f.call, f.number);
}

/// Whoever waits for the GPU goes on when the communicators are aborted, and must find the error.
void NcclWatch::end(const Error& error, std::unique_lock<std::mutex>& lock) {
  error_ = std::make_unique<Error>(error);
  ended_ = true;
  auto comms = comms_;
  lock.unlock();
  lost_(error);
  for (auto& weak : comms)
    if (auto comm = weak.lock()) comm->abort();
  lock.lock();
  lines_.clear();
}

}  // namespace triax::parallel
