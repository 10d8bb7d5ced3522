#include "tests/gpu_on_cpu/libraries/nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "tests/gpu_on_cpu/libraries/nccl_board.h"
#include "tests/gpu_on_cpu/libraries/nccl_kernel.h"
#include "tests/gpu_on_cpu/libraries/nccl_request.h"
#include "tests/gpu_on_cpu/runtime.h"

using triax::parallel::Call;
using namespace triax::gpu_on_cpu;
using nccl::Request;

namespace {

/// One for all: what a rank waits for is nearly always what another one does.
std::mutex mutex;
/// Never destroyed: the launcher's thread still waits for it while the process ends, and destroying
/// it would wait for that thread.
auto& changed = *new std::condition_variable;
nccl::Behaviour behaviour = [] {
  const char* version = std::getenv("GPU_ON_CPU_NCCL");
  return version ? nccl::Behaviour{.version = std::atoi(version)} : nccl::Behaviour{};
}();
std::vector<nccl::Called> recorded;
int comms_alive = 0, comms_aborted = 0, kernels_started = 0;

/// One rank of a communicator.
struct Member {
  std::shared_ptr<nccl::Board> board;
  int clique = -1, size = 0;
  int rank = 0, world_rank = 0, device = 0;
  int processors = 32;  // that a transfer takes, where the configuration says nothing
  std::string name;
  int splits = 0;
  std::atomic<bool> aborted = false;
  int in_streams = 0;                        // transfers that have not left them
  std::vector<std::function<void()>> begun;  // not in a stream yet
  bool asked = false;                        // since then whether that is done
  void* buffers = nullptr;                   // of the device's memory (Options::nccl_memory)
  std::string error;                         // they did not fit
  struct Split {
    int number, color;
    ncclComm_t* to;
    std::string name;
    int processors;
  };
  std::vector<Split> splitting;

  nccl::Board::Clique& here() const { return board->clique(clique); }
  ~Member() {
    if (buffers) memories()[size_t(device)]->free(buffers);
  }
  /// Takes part in a clique. Under the board's lock.
  void join(int index) {
    clique = index;
    size = here().size;
    ++here().joined;
  }
};

struct Queued {
  ncclComm_t comm;
  Request request;
  cudaStream_t stream;
};
thread_local std::vector<Queued> group;
thread_local int group_depth = 0;
thread_local std::vector<std::shared_ptr<Member>> aborting;

}  // namespace

struct ncclComm {
  std::shared_ptr<Member> member = std::make_shared<Member>();
};

namespace {

void record(const Member& m, std::string_view function, size_t count = 0, int peer = -1) {
  recorded.push_back({std::string(function), m.name, m.rank, m.size, m.world_rank, count, peer});
}

/// A rank at a meeting. Under the board's lock.
struct Presence {
  const int64_t& over;  // of the meeting
  int64_t number;
  uint32_t& here;
  uint32_t bit;
  bool is_over() const { return over > number; }
  /// Ends it: others would find that this rank's memory is gone.
  void leave() const {
    if (!is_over()) here &= ~bit;
  }
};

Presence come(Member& m, const Request& r) {
  nccl::Board::Clique& clique = m.here();
  const Call& c = r.call;
  nccl::Brought part{c.kind, c.op, c.dtype, c.peer, c.numel, where_is(r.from), where_is(r.to)};
  if (!c.is_message()) {
    auto& meeting = clique.collectives;
    int64_t number = m.board->come(clique, meeting, m.rank, m.size, part);
    return {meeting.over, number, meeting.here, 1u << m.rank};
  }
  bool sends = c.kind == Call::send;
  nccl::Link& link = sends ? clique.links[m.rank][c.peer] : clique.links[c.peer][m.rank];
  int64_t number = sends ? m.board->send(clique, link, part) : m.board->receive(clique, link, part);
  return {link.meeting.over, number, link.meeting.here, sends ? 1u : 2u};
}

/// In a stream: until all of it, which goes on at once, is done, or this rank aborts.
void take_part(const std::shared_ptr<Member>& m, const std::vector<Request>& requests,
               nccl::Kernel& kernel) {
  std::unique_lock lock(mutex);
  changed.wait(lock,
               [&] { return kernel.may_start(); });  // NCCL's kernels see an abort once they run
  kernel.start();
  ++m->in_streams, ++kernels_started;
  changed.notify_all();
  changed.wait(lock, [&] { return !behaviour.hang || m->aborted; });
  lock.unlock();
  if (!m->aborted) {
    std::lock_guard at_board(*m->board);
    std::vector<Presence> all;
    for (const Request& r : requests) all.push_back(come(*m, r));
    m->board->wait([&] { return m->aborted || std::ranges::all_of(all, &Presence::is_over); });
    std::ranges::for_each(all, &Presence::leave);
  }
  lock.lock();
  kernel.end(), --m->in_streams, --kernels_started;
  changed.notify_all();
}

/// The library's own thread: puts into streams what was begun, once the communicator is asked how
/// far it is; late, where nobody asks, so that who goes on without asking finds its stream empty.
class Launcher {
 public:
  /// Under the lock.
  void add(const std::shared_ptr<Member>& m) {
    begun_.push_back({m, Clock::now() + std::chrono::milliseconds(50)});
    changed.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Begun {
    std::shared_ptr<Member> member;
    Clock::time_point latest;
    bool is_due() const { return member->asked || member->aborted || Clock::now() > latest; }
  };
  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      auto due = [&] { return std::ranges::any_of(begun_, &Begun::is_due); };
      changed.wait_for(lock, std::chrono::milliseconds(begun_.empty() ? 1000 : 5), due);
      std::erase_if(begun_, [](const Begun& b) { return b.is_due() && (launch(*b.member), true); });
    }
  }
  static void launch(Member& m) {
    for (auto& put_in_stream : std::exchange(m.begun, {}))
      if (!m.aborted) put_in_stream();
  }

  std::vector<Begun> begun_;
  std::thread thread_{[this] { work(); }};
};

Launcher& launcher() {
  static auto& one = *new Launcher;  // ends with the process
  return one;
}

/// Takes a communicator's buffers at its first transfer. False if they do not fit.
bool take_buffers(Member& m) {
  size_t bytes = options().nccl_memory;
  if (bytes > 0 && !m.buffers) {
    m.buffers = memories()[size_t(m.device)]->allocate(bytes);
    if (!m.buffers) m.error = "Failed to CUDA calloc " + std::to_string(bytes) + " bytes";
  }
  return m.error.empty();
}

/// Tells what a transfer reads and writes (races.h). A gather leaves its own part as it is if that
/// is there already.
void touch_buffers(const Member& m, const Request& r, cudaStream_t stream) {
  const Call& c = r.call;
  size_t one = size_t(c.numel) * triax::size_of(c.dtype), all = one * size_t(m.size);
  const char* to = static_cast<const char*>(r.to);
  const char* what = name(c.kind).data();
  bool is_elsewhere = (c.kind == Call::broadcast || c.kind == Call::reduce) && m.rank != c.peer;
  size_t read = c.kind == Call::reduce_scatter ? all : one;
  if (c.kind == Call::broadcast && is_elsewhere) read = 0;
  if (c.kind == Call::all_gather) {
    size_t own = one * size_t(m.rank), behind = own + one;
    size_t kept = r.from == to + own ? 0 : one;
    touch(stream, what,
          {{r.from, one, false},
           {to, own, true},
           {to + own, kept, true},
           {to + behind, all - behind, true}});
  } else {
    touch(stream, what,
          {{r.from, read, false}, {to, c.kind == Call::reduce && is_elsewhere ? 0 : one, true}});
  }
}

/// Under the lock. What is captured has no order here.
void launch(cudaStream_t stream, const std::shared_ptr<Member>& m, std::vector<Request> requests) {
  if (!take_buffers(*m)) return;
  bool captured = capturing(stream);
  auto kernel = captured ? std::make_shared<nccl::Kernel>() : nccl::next_kernel(m->device);
  kernel->device = m->device;
  kernel->processors = std::min(m->processors, options().processors);
  bool counts = !captured;
  m->in_streams += counts;
  for (const Request& r : requests) touch_buffers(*m, r, stream);
  enqueue(stream, [m, requests = std::move(requests), kernel, counts] {
    take_part(m, requests, *kernel);
    std::lock_guard guard(mutex);
    m->in_streams -= counts;
    changed.notify_all();
  });
}

/// Collectives one after the other, messages of a group all at once.
void begin(const std::vector<Queued>& queued) {
  std::map<std::pair<ncclComm_t, cudaStream_t>, std::vector<Request>> messages;
  auto add = [](ncclComm_t comm, cudaStream_t stream, const std::vector<Request>& requests) {
    comm->member->begun.push_back(
        [stream, member = comm->member, requests] { launch(stream, member, requests); });
  };
  for (const Queued& q : queued) {
    const Call& c = q.request.call;
    record(*q.comm->member, name(c.kind), size_t(c.numel), c.peer);
    if (c.is_message()) messages[{q.comm, q.stream}].push_back(q.request);
    else add(q.comm, q.stream, {q.request});
  }
  for (auto& [where, requests] : messages) add(where.first, where.second, requests);
  std::set<std::shared_ptr<Member>> members;
  for (const Queued& q : queued) members.insert(q.comm->member);
  for (const auto& m : members) m->asked = false, launcher().add(m);
}

bool complete(const Member& m) {
  std::lock_guard at_board(*m.board);
  return m.here().joined >= m.size;
}

void wait_for_aborts(std::unique_lock<std::mutex>& lock) {
  for (auto& m : std::exchange(aborting, {}))
    changed.wait(lock, [&] { return m->in_streams == 0; });
}

/// Ends the start of all ranks if one has this one's GPU. Under the board's lock.
void refuse_duplicates(Member& m) {
  nccl::Board::Clique& all = m.here();
  bool duplicate = std::count(all.devices, all.devices + m.size, m.device + 1) > 0;
  if (duplicate) std::fill_n(all.errors, m.size, ncclInvalidUsage);
  all.devices[m.rank] = m.device + 1;
}

/// Makes the part of this rank once all have said where they belong. Under both locks.
bool split(Member& m, const Member::Split& s) {
  auto& told = m.here().splits[s.number];
  if (told.told < m.size) return false;
  if (s.color == NCCL_SPLIT_NOCOLOR) return true;
  std::vector<std::pair<int, int>> mine;  // key, rank
  for (int r = 0; r < m.size; ++r)
    if (told.seats[r].color == s.color) mine.push_back({told.seats[r].key, r});
  std::ranges::sort(mine);
  auto* comm = new ncclComm;
  Member& n = *comm->member;
  n.board = m.board;
  n.name = s.name;
  n.world_rank = m.world_rank;
  n.device = m.device;
  n.processors = s.processors;
  for (size_t i = 0; i < mine.size(); ++i)
    if (mine[i].second == m.rank) n.rank = int(i);
  n.join(m.board->clique_of(m.clique, s.number, s.color, int(mine.size())));
  ++comms_alive;
  *s.to = comm;
  return true;
}

}  // namespace

namespace triax::gpu_on_cpu::nccl {

ncclResult_t ask(ncclComm_t comm, const Request& r, cudaStream_t stream) {
  if (!comm) return ncclInvalidArgument;
  std::lock_guard guard(mutex);
  if (!complete(*comm->member) || !comm->member->begun.empty()) return ncclInvalidUsage;
  group.push_back({comm, r, stream});
  if (group_depth > 0) return ncclSuccess;
  begin(std::exchange(group, {}));
  return ncclInProgress;
}

std::vector<Called> calls() {
  std::lock_guard guard(mutex);
  return recorded;
}
void behave(const Behaviour& b) {
  std::lock_guard guard(mutex);
  behaviour = b;
  recorded.clear();
  comms_aborted = 0;
  changed.notify_all();
}
int alive() {
  std::lock_guard guard(mutex);
  return comms_alive;
}
int holding() {
  std::lock_guard guard(mutex);
  return kernels_started;
}
int aborted() {
  std::lock_guard guard(mutex);
  return comms_aborted;
}

}  // namespace triax::gpu_on_cpu::nccl

ncclResult_t ncclGetVersion(int* version) {
  std::lock_guard guard(mutex);
  *version = behaviour.version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = nccl::Board::make();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  std::lock_guard guard(mutex);
  if (config->blocking != 0) return ncclInvalidArgument;
  auto board = nccl::Board::of(id);
  if (!board) return ncclSystemError;
  *comm = new ncclComm;
  Member& m = *(*comm)->member;
  m.board = board;
  m.rank = m.world_rank = rank;
  m.name = config->commName;
  cudaGetDevice(&m.device);
  if (config->maxCTAs != NCCL_CONFIG_UNDEF_INT) m.processors = config->maxCTAs;
  std::lock_guard at_board(*board);
  m.join(board->clique_of(-1, 0, 0, size));
  refuse_duplicates(m);
  ++comms_alive;
  record(m, "init");
  board->notify();
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* to,
                           ncclConfig_t* config) {
  std::lock_guard guard(mutex);
  Member& m = *comm->member;
  int number = m.splits++;
  nccl::Board::check_split(number);
  bool bounded = config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
  m.splitting.push_back(
      {number, color, to, config->commName, bounded ? config->maxCTAs : m.processors});
  record(m, "split");
  std::lock_guard at_board(*m.board);
  auto& told = m.here().splits[number];
  told.seats[m.rank] = {color, key};
  ++told.told;
  m.board->notify();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  std::lock_guard guard(mutex);
  Member& m = *comm->member;
  std::lock_guard at_board(*m.board);
  ncclResult_t error = m.error.empty() ? m.here().errors[m.rank] : ncclUnhandledCudaError;
  *result = error != ncclSuccess ? error : behaviour.fails;
  if (*result != ncclSuccess) return ncclSuccess;
  if (m.here().joined < m.size) *result = ncclInProgress;
  std::erase_if(m.splitting, [&](auto& s) { return split(m, s); });
  if (!m.splitting.empty()) *result = ncclInProgress;
  if (m.begun.empty()) return ncclSuccess;
  *result = ncclInProgress;
  m.asked = true;
  changed.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  std::lock_guard guard(mutex);
  record(*comm->member, "finalize");
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::lock_guard guard(mutex);
  --comms_alive;
  delete comm;
  return ncclSuccess;
}
// Returns when its transfers have left their streams: in a group, all that are aborted.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_lock lock(mutex);
  --comms_alive;
  ++comms_aborted;
  comm->member->aborted = true;
  comm->member->board->notify();
  changed.notify_all();
  aborting.push_back(comm->member);
  delete comm;
  if (group_depth == 0) wait_for_aborts(lock);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++group_depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  std::unique_lock lock(mutex);
  begin(std::exchange(group, {}));
  wait_for_aborts(lock);
  return ncclInProgress;
}

const char* ncclGetLastError(ncclComm_t comm) {
  std::lock_guard guard(mutex);
  return comm->member->error.empty() ? behaviour.last_error : comm->member->error.c_str();
}
