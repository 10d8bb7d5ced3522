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
#include <thread>

#include "parallel/comm/movement.h"
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
int comms_alive = 0, comms_aborted = 0;

struct Member;

/// One collective of a clique, or one message (sender 0, receiver 1). A graph comes to it again
/// with every launch.
struct Meeting {
  explicit Meeting(int parties) : requests(size_t(parties)), here(size_t(parties)) {}
  std::vector<Request> requests;
  std::vector<char> here;
  int64_t rounds = 0;  // done
};

/// The ranks of one communicator.
struct Clique {
  explicit Clique(int ranks) : members(size_t(ranks)) {}
  std::vector<Member*> members;
  std::map<int64_t, std::shared_ptr<Meeting>> collectives;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Meeting>>> messages;  // from, to
  struct Seat {
    int color, key, rank;
  };
  std::map<int64_t, std::vector<Seat>> splits;
  std::map<std::pair<int64_t, int>, std::shared_ptr<Clique>> parts;
  int joined = 0;
  bool complete() const { return joined == int(members.size()); }
  void join(Member& m);
};

/// One rank of a clique.
struct Member {
  std::shared_ptr<Clique> clique;
  int rank = 0, world_rank = 0, device = 0;
  int processors = 32;  // that a transfer takes, where the configuration says nothing
  std::string name;
  int64_t collectives = 0, splits = 0;
  std::map<std::pair<int, int>, int64_t> messages;
  bool aborted = false;
  ncclResult_t error = ncclSuccess;
  std::vector<std::function<void()>> begun;  // not in a stream yet
  bool asked = false;                        // since then whether that is done
  struct Split {
    int64_t number;
    int color;
    ncclComm_t* to;
    std::string name;
    int processors;
  };
  std::vector<Split> splitting;
};

void Clique::join(Member& m) {
  members[size_t(m.rank)] = &m;
  ++joined;
}

std::map<std::string, std::shared_ptr<Clique>> cliques;  // by unique id
int64_t ids = 0;

struct Queued {
  ncclComm_t comm;
  Request request;
  cudaStream_t stream;
};
thread_local std::vector<Queued> group;
thread_local int group_depth = 0;

}  // namespace

struct ncclComm {
  std::shared_ptr<Member> member = std::make_shared<Member>();
};

namespace {

void record(const Member& m, std::string_view function, size_t count = 0, int peer = -1) {
  recorded.push_back({std::string(function), m.name, m.rank, int(m.clique->members.size()),
                      m.world_rank, count, peer});
}

/// All have come: move, unless somebody asked for something else.
void finish(Clique& clique, Meeting& meeting) {
  const Call& first = meeting.requests[0].call;
  triax::parallel::RankBuffers buffers;
  bool fits = true;
  for (const Request& r : meeting.requests) {
    bool message = r.call.kind == Call::send || r.call.kind == Call::recv;
    fits &= message ? r.call.dtype == first.dtype && r.call.numel == first.numel
                    : r.call.matches(first);
    buffers.from.push_back(static_cast<const std::byte*>(r.from));
    buffers.to.push_back(static_cast<std::byte*>(r.to));
  }
  if (fits) {
    int parties = int(meeting.requests.size());
    triax::parallel::move(first, buffers, 0, triax::parallel::elements(first, parties));
  } else {
    for (Member* m : clique.members)
      if (m) m->error = ncclInvalidUsage;
  }
  meeting.rounds += fits;
  std::ranges::fill(meeting.here, false);
  changed.notify_all();
}

struct Part {
  std::shared_ptr<Meeting> meeting;
  int party;
  Request request;
};

/// In a stream: until all of it, which goes on at once, is done, or this rank aborts.
void take_part(const std::shared_ptr<Member>& m, const std::vector<Part>& parts,
               nccl::Kernel& kernel) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return m->aborted || kernel.may_start(); });
  kernel.start();
  struct End {
    nccl::Kernel& kernel;
    ~End() { kernel.end(), changed.notify_all(); }
  } end{kernel};
  changed.notify_all();
  changed.wait(lock, [&] { return !behaviour.hang || m->aborted; });
  if (m->aborted) return;
  auto rounds = [](const Part& p) { return p.meeting->rounds; };
  std::vector<int64_t> before(parts.size());
  std::ranges::transform(parts, before.begin(), rounds);
  for (const Part& p : parts) {
    p.meeting->requests[size_t(p.party)] = p.request;
    p.meeting->here[size_t(p.party)] = true;
    if (std::ranges::all_of(p.meeting->here, [](char c) { return c; }))
      finish(*m->clique, *p.meeting);
  }
  changed.wait(lock, [&] {
    return m->aborted || std::ranges::equal(before, parts, std::less{}, {}, rounds);
  });
  if (m->aborted)  // what others find of this rank's memory is gone
    for (const Part& p : parts) p.meeting->here[size_t(p.party)] = false;
}

Part part_of(Member& m, const Request& r) {
  int n = int(m.clique->members.size());
  if (r.call.kind != Call::send && r.call.kind != Call::recv) {
    auto& meeting = m.clique->collectives[m.collectives++];
    if (!meeting) meeting = std::make_shared<Meeting>(n);
    return {meeting, m.rank, r};
  }
  bool sends = r.call.kind == Call::send;
  std::pair way = sends ? std::pair(m.rank, r.call.peer) : std::pair(r.call.peer, m.rank);
  auto& line = m.clique->messages[way];
  auto number = size_t(m.messages[{sends ? 0 : 1, r.call.peer}]++);
  while (line.size() <= number) line.push_back(std::make_shared<Meeting>(2));
  return {line[number], sends ? 0 : 1, r};
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

/// Under the lock. What is captured has no order here.
void launch(cudaStream_t stream, const std::shared_ptr<Member>& m, std::vector<Part> parts) {
  auto kernel = nccl::next_kernel(m->device, m->processors);
  if (capturing(stream)) kernel->before = nullptr;
  enqueue(stream, [m, parts = std::move(parts), kernel] { take_part(m, parts, *kernel); });
}

/// Collectives one after the other, messages of a group all at once.
void begin(const std::vector<Queued>& queued) {
  std::map<std::pair<ncclComm_t, cudaStream_t>, std::vector<Part>> messages;
  for (const Queued& q : queued) {
    Member& m = *q.comm->member;
    record(m, name(q.request.call.kind), size_t(q.request.call.numel), q.request.call.peer);
    Part part = part_of(m, q.request);
    if (q.request.call.kind == Call::send || q.request.call.kind == Call::recv) {
      messages[{q.comm, q.stream}].push_back(part);
      continue;
    }
    m.begun.push_back(
        [stream = q.stream, member = q.comm->member, part] { launch(stream, member, {part}); });
  }
  for (auto& [where, parts] : messages)
    where.first->member->begun.push_back([stream = where.second, member = where.first->member,
                                          parts = parts] { launch(stream, member, parts); });
  std::set<std::shared_ptr<Member>> members;
  for (const Queued& q : queued) members.insert(q.comm->member);
  for (const auto& m : members) m->asked = false, launcher().add(m);
}

/// Makes the part of this rank once all have said where they belong. Under the lock.
bool split(Member& m, const Member::Split& s) {
  auto& seats = m.clique->splits[s.number];
  if (seats.size() < m.clique->members.size()) return false;
  if (s.color == NCCL_SPLIT_NOCOLOR) return true;
  std::vector<std::pair<int, int>> mine;  // key, rank
  for (const auto& seat : seats)
    if (seat.color == s.color) mine.push_back({seat.key, seat.rank});
  std::ranges::sort(mine);
  auto& part = m.clique->parts[{s.number, s.color}];
  if (!part) part = std::make_shared<Clique>(int(mine.size()));
  auto* comm = new ncclComm;
  Member& n = *comm->member;
  n.clique = part;
  n.name = s.name;
  n.world_rank = m.world_rank;
  n.device = m.device;
  n.processors = s.processors;
  for (size_t i = 0; i < mine.size(); ++i)
    if (mine[i].second == m.rank) n.rank = int(i);
  part->join(n);
  ++comms_alive;
  *s.to = comm;
  return true;
}

}  // namespace

namespace triax::gpu_on_cpu::nccl {

ncclResult_t ask(ncclComm_t comm, const Request& r, cudaStream_t stream) {
  if (!comm) return ncclInvalidArgument;
  std::lock_guard guard(mutex);
  if (!comm->member->clique->complete() || !comm->member->begun.empty()) return ncclInvalidUsage;
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
  std::lock_guard guard(mutex);
  *id = {};
  std::memcpy(id->internal, &++ids, sizeof ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  std::lock_guard guard(mutex);
  if (config->blocking != 0) return ncclInvalidArgument;
  auto& clique = cliques[{id.internal, sizeof id.internal}];
  if (!clique) clique = std::make_shared<Clique>(size);
  *comm = new ncclComm;
  Member& m = *(*comm)->member;
  m.clique = clique;
  m.rank = m.world_rank = rank;
  m.name = config->commName;
  cudaGetDevice(&m.device);
  if (config->maxCTAs != NCCL_CONFIG_UNDEF_INT) m.processors = config->maxCTAs;
  for (Member* other : clique->members)
    if (other && other->device == m.device) m.error = other->error = ncclInvalidUsage;
  clique->join(m);
  ++comms_alive;
  record(m, "init");
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* to,
                           ncclConfig_t* config) {
  std::lock_guard guard(mutex);
  Member& m = *comm->member;
  int64_t number = m.splits++;
  m.clique->splits[number].push_back({color, key, m.rank});
  bool bounded = config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
  m.splitting.push_back(
      {number, color, to, config->commName, bounded ? config->maxCTAs : m.processors});
  record(m, "split");
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  std::lock_guard guard(mutex);
  Member& m = *comm->member;
  *result = m.error != ncclSuccess ? m.error : behaviour.fails;
  if (*result != ncclSuccess) return ncclSuccess;
  if (!m.clique->complete()) *result = ncclInProgress;
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
  comm->member->clique->members[size_t(comm->member->rank)] = nullptr;
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::lock_guard guard(mutex);
  --comms_alive;
  ++comms_aborted;
  comm->member->aborted = true;
  comm->member->clique->members[size_t(comm->member->rank)] = nullptr;
  changed.notify_all();
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++group_depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  std::lock_guard guard(mutex);
  begin(std::exchange(group, {}));
  return ncclInProgress;
}
