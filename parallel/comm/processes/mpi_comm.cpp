#include "triax/parallel/comm/processes/mpi_comm.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "triax/core/check.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/comm/processes/exchange.h"
#include "triax/parallel/comm/processes/window.h"
#include "triax/parallel/comm/wait.h"

namespace triax::parallel {
namespace {

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(Exit::peer_lost, "MPI: {} failed: {}", what, std::string(text, size_t(length)));
}

bool environment_says(const char* variable, const char* value) {
  const char* text = std::getenv(variable);
  return text && !std::strcmp(text, value);
}

class MpiPointToPoint final : public PointToPoint {
 public:
  explicit MpiPointToPoint(MPI_Comm comm) : comm_(comm) {}

  Request send(const void* data, size_t bytes, int to, int tag) override {
    auto post = synchronous_ ? MPI_Issend : MPI_Isend;
    return in_parts(bytes, "send", [&](size_t at, int count, MPI_Request* request) {
      return post(static_cast<const char*>(data) + at, count, MPI_BYTE, to, tag, comm_, request);
    });
  }

  Request receive(void* data, size_t bytes, int from, int tag) override {
    return in_parts(bytes, "receive", [&](size_t at, int count, MPI_Request* request) {
      return MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, from, tag, comm_, request);
    });
  }

 private:
  /// Posts in parts: MPI counts in int.
  template <class Post> static Request in_parts(size_t bytes, const char* what, Post post) {
    constexpr size_t limit = size_t{1} << 30;
    std::vector<MPI_Request> parts;
    for (size_t at = 0; at < bytes; at += limit)
      check_mpi(post(at, int(std::min(limit, bytes - at)), &parts.emplace_back()), what);
    return [parts = std::move(parts)]() mutable {
      int all = 0;
      check_mpi(MPI_Testall(int(parts.size()), parts.data(), &all, MPI_STATUSES_IGNORE),
                "transfer");
      return all != 0;
    };
  }

  MPI_Comm comm_;
  bool synchronous_ = environment_says("TRIAX_SYNCHRONOUS_SENDS", "on");
};

/// The resources of a world. Communicators can only be freed by all ranks together, so they all
/// wait for the orderly end.
struct Resources {
  MpiOptions options;
  std::vector<MPI_Comm> comms;  ///< in the order made
  MPI_Comm host = MPI_COMM_NULL;
  std::shared_ptr<SharedMemory> memory;  ///< null: ranks exchange over MPI, as between hosts
  std::shared_ptr<Allocator> allocator;  ///< of that memory
  std::vector<int> host_rank;            ///< by world rank; -1 on another host
  int host_id = 0;                       ///< the world's first rank on this host
};

/// Returns the size of one rank's segment. Only pages that are used count, so it is ample.
int64_t segment_bytes(int ranks) {
  int64_t installed = int64_t(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  return std::min<int64_t>(installed / 2 / ranks, int64_t{64} << 30) >> 21 << 21;
}

/// Splits `host`, and frees it, as if there were more hosts of so many ranks each.
MPI_Comm split_host(MPI_Comm host, const char* ranks) {
  char* end = nullptr;
  long n = std::strtol(ranks, &end, 10);
  check_input(end != ranks && *end == 0 && n > 0, Exit::config,
              "TRIAX_RANKS_PER_HOST: '{}'; expected a number of ranks above 0", ranks);
  int rank = 0;
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_rank(host, &rank);
  check_mpi(MPI_Comm_split(host, int(rank / n), 0, &part), "MPI_Comm_split");
  MPI_Comm_free(&host);
  return part;
}

void share_memory(Resources& r) {
  constexpr int64_t least = 8 << 20;
  int n = 0, mine = 0;
  MPI_Comm_size(r.host, &n);
  MPI_Comm_rank(r.host, &mine);
  bool wanted = n > 1 && n <= WindowControl::max_ranks && !environment_says("TRIAX_WINDOW", "off");
  int64_t bytes = wanted ? segment_bytes(n) : 0;
  MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_INT64_T, MPI_MIN, r.host);
  if (bytes < least) return;
  Segment own = Segment::create(size_t(bytes));
  Segment::Handle handle = own.handle();
  std::vector<Segment::Handle> handles(static_cast<size_t>(n));
  MPI_Allgather(&handle, sizeof handle, MPI_BYTE, handles.data(), sizeof handle, MPI_BYTE, r.host);
  std::vector<Segment> segments;
  int failed = 0;
  for (int p = 0; p < n; ++p) {
    segments.push_back(p == mine ? std::move(own)
                                 : Segment::open(handles[size_t(p)], size_t(bytes)));
    failed |= !segments.back().usable();
  }
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, r.host);
  if (failed) return;
  for (Segment& s : segments) s.close();  // all ranks have opened them
  r.memory = std::make_shared<SharedMemory>(std::move(segments), mine);
  r.allocator = shared_allocator(r.memory);
}

class MpiComm final : public Communicator {
 public:
  MpiComm(std::shared_ptr<Resources> resources, MPI_Comm comm, Group g)
      : Communicator(std::move(g)),
        resources_(std::move(resources)),
        comm_(comm),
        queue_(std::make_shared<OperationQueue>(group(), fault(), resources_->options.crowded)),
        p2p_(std::make_shared<MpiPointToPoint>(comm)) {
    open_window_group();
    if (!window_) open_levels();
    queue_->keep(p2p_);
    queue_->keep(window_);
  }

  std::shared_ptr<Allocator> allocator() override {
    if (levels_) return levels_->allocator;
    return window_ ? resources_->allocator : Communicator::allocator();
  }
  const char* transport() const override {
    if (window_) return "shared memory";
    if (levels_) return resources_->memory ? "shared memory and MPI" : "MPI in two levels";
    return "MPI";
  }
  std::shared_ptr<Resources> resources() { return resources_; }

 private:
  void open_window_group() {
    bool one_host = resources_->memory && size() > 1;
    for (int r : group().members) one_host = one_host && resources_->host_rank[size_t(r)] >= 0;
    int everywhere = one_host;
    MPI_Allreduce(MPI_IN_PLACE, &everywhere, 1, MPI_INT, MPI_MIN, comm_);
    if (!everywhere) return;
    SharedMemory& memory = *resources_->memory;
    SharedMemory::Address where;
    if (rank() == 0)
      if (void* data = memory.allocate(WindowControl::bytes(size()))) {
        std::memset(data, 0, WindowControl::bytes(size()));
        where = memory.find(data);
      }
    MPI_Bcast(&where, sizeof where, MPI_BYTE, 0, comm_);
    int usable = where.segment >= 0;
    if (usable) {
      auto* control = reinterpret_cast<WindowControl*>(memory.at(where));
      window_ = std::make_shared<WindowGroup>(resources_->memory, control, group());
      usable = window_->usable();
    }
    MPI_Allreduce(MPI_IN_PLACE, &usable, 1, MPI_INT, MPI_MIN, comm_);  // and all have made theirs
    if (!usable) window_ = nullptr;
  }

  std::shared_ptr<MpiComm> part(int color, const char* name) {
    Group g{.name = fmt::format("{} {}", group().name, name), .time_limit = group().time_limit};
    MPI_Comm comm = split_off(color, rank());
    int size = 0;
    MPI_Comm_rank(comm, &g.rank);
    MPI_Comm_size(comm, &size);
    g.members.resize(size_t(size));
    int world = group().members[size_t(rank())];
    MPI_Allgather(&world, 1, MPI_INT, g.members.data(), 1, MPI_INT, comm);
    return std::make_shared<MpiComm>(resources_, comm, std::move(g));
  }

  /// Prepares two levels if several hosts have equally many, neighbouring, ranks, more than one.
  void open_levels() {
    std::vector<int> hosts(static_cast<size_t>(size()));
    MPI_Allgather(&resources_->host_id, 1, MPI_INT, hosts.data(), 1, MPI_INT, comm_);
    auto n = std::ranges::count(hosts, hosts[0]);
    bool even = n > 1 && n < size() && size() % n == 0;
    for (size_t r = 0; even && r < hosts.size(); ++r)
      even = hosts[r] == hosts[r - r % size_t(n)] && std::ranges::count(hosts, hosts[r]) == n;
    if (!even) return;
    int host = rank() / int(n), place = rank() % int(n);
    auto within = part(host, "within a host"), across = part(place, "across hosts");
    levels_ = std::make_shared<HostLevels>(
        HostLevels{.within = int(n),
                   .hosts = size() / int(n),
                   .host = host,
                   .place = place,
                   .start_within = [within](Transfer t) { return within->operation(std::move(t)); },
                   .start_across = [across](Transfer t) { return across->operation(std::move(t)); },
                   .allocator = within->allocator()});
  }

  std::shared_ptr<QueuedOperation> operation(Transfer t) {
    int64_t number = collectives_++;
    if (window_) return window_->operation(queue_, std::move(t));
    auto mover = levels_ ? mover_across_hosts(levels_, t) : nullptr;
    return exchange(queue_, std::move(t), *p2p_, number, std::move(mover));
  }

  Work start(Transfer t) override {
    for (const Tensor* x : {&t.from, &t.to})
      check(!x->defined() || x->device() == cpu, "{}: {}; expected a tensor on the cpu",
            name(t.call.kind), *x);
    if (t.call.is_message()) return queue_->add(message(queue_, std::move(t), *p2p_));
    return queue_->add(operation(std::move(t)));
  }

  MPI_Comm split_off(int color, int key) {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(comm_, color, key, &comm), "MPI_Comm_split");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    resources_->comms.push_back(comm);
    return comm;
  }

  std::unique_ptr<Communicator> start_split(Group g, int, int color) override {
    Deadline deadline("split into " + g.name, resources_->options.time_limit);
    MPI_Comm comm = split_off(color, g.rank);
    return std::make_unique<MpiComm>(resources_, comm, std::move(g));
  }

  std::shared_ptr<Resources> resources_;
  MPI_Comm comm_;
  std::shared_ptr<OperationQueue> queue_;
  std::shared_ptr<MpiPointToPoint> p2p_;
  std::shared_ptr<WindowGroup> window_;
  std::shared_ptr<const HostLevels> levels_;
  int64_t collectives_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> mpi_world(MpiOptions options) {
  Deadline deadline("start of the world", Deadline::of_start());
  auto r = std::make_shared<Resources>();
  r->options = options;
  MPI_Comm world = MPI_COMM_NULL;
  MPI_Comm all = options.ranks ? MPI_Comm_f2c(*options.ranks) : MPI_COMM_WORLD;
  check_mpi(MPI_Comm_dup(all, &world), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  r->comms.push_back(world);
  int rank = 0, size = 0, on_host = 0;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_size(world, &size);
  check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &r->host),
            "MPI_Comm_split_type");
  if (const char* ranks = std::getenv("TRIAX_RANKS_PER_HOST")) r->host = split_host(r->host, ranks);
  MPI_Comm_set_errhandler(r->host, MPI_ERRORS_RETURN);
  MPI_Comm_size(r->host, &on_host);
  std::vector<int> ranks_here(static_cast<size_t>(on_host));
  MPI_Allgather(&rank, 1, MPI_INT, ranks_here.data(), 1, MPI_INT, r->host);
  r->host_id = ranks_here[0];
  r->host_rank.assign(size_t(size), -1);
  for (int p = 0; p < on_host; ++p) r->host_rank[size_t(ranks_here[size_t(p)])] = p;
  share_memory(*r);
  return std::make_unique<MpiComm>(r, world, Group::world(size, rank, options.time_limit));
}

void close_mpi_world(std::unique_ptr<Communicator> world) {
  auto* comm = dynamic_cast<MpiComm*>(world.get());
  check(comm != nullptr, "close_mpi_world: not a world of MPI");
  auto resources = comm->resources();
  Resources& r = *resources;
  Deadline deadline("end of the world", r.options.time_limit);
  world.reset();
  for (auto it = r.comms.rbegin(); it != r.comms.rend(); ++it) MPI_Comm_free(&*it);
  r.comms.clear();
  if (r.host != MPI_COMM_NULL) MPI_Comm_free(&r.host);
}

}  // namespace triax::parallel
