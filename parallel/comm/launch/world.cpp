#include "triax/parallel/comm/launch/world.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <stdexcept>

#include "triax/core/backend.h"
#include "triax/core/check.h"
#include "triax/core/gpus.h"
#include "triax/core/io/files.h"
#include "triax/parallel/comm/gpu/device_comm.h"
#include "triax/parallel/comm/gpu/gpu_ranks.h"
#include "triax/parallel/comm/gpu/nccl_comm.h"
#include "triax/parallel/comm/launch/session.h"
#include "triax/parallel/comm/process.h"

// A World, whatever started its ranks.

namespace triax::parallel {
namespace {

std::unique_ptr<Communicator> host_plane(Communicator& comm) {
  return comm.split([](int rank) { return Communicator::Seat{0, rank}; }, "host");
}

std::unique_ptr<Session> started(int& argc, char**& argv, std::optional<int> mpi) {
  check_threads();
  return std::make_unique<Session>(argc, argv, mpi);
}

/// Opens standard streams that are closed: else a file that is opened takes the number of one, and
/// printed text lands in it.
void open_closed_streams() {
  for (int stream : {0, 1, 2})
    if (::fcntl(stream, F_GETFD) < 0)
      (void)!::open("/dev/null", O_RDWR);  // the lowest that is free
}

/// Raises the limit of open files: checkpoints have a file for each rank; threads share a limit.
void raise_limit_of_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

World::World(int& argc, char**& argv, WorldOptions options)
    : session_(started(argc, argv, options.mpi)),
      local_rank_(session_->local_rank()),
      local_size_(session_->local_size()) {
  core_share_ = parallel::core_share(session_->sharing(), local_size_);
  threads_ = set_rank_threads(core_share_);
  comm_ = session_->open(options, threads_ > core_share_);
  host_ = host_plane(*comm_);
  bind(options);
}

World::World(std::unique_ptr<Communicator> comm, int threads, WorldOptions options)
    : comm_(std::move(comm)),
      host_(host_plane(*comm_)),
      local_rank_(comm_->rank()),
      local_size_(comm_->size()),
      threads_(threads),
      core_share_(parallel::core_share(local_size_, local_size_)) {
  bind(options);
}

void World::bind(const WorldOptions& options) {
  using enum GpuTransport;
  if (options.wrap) {
    comm_ = options.wrap(std::move(comm_));
    check(comm_ != nullptr, "wrap: null; expected a communicator around the one given");
  }
  Device device = options.device;
  if (device.kind != Device::Kind::cuda) return;
  if (device.index == WorldOptions::own_gpu) device.index = local_rank_ % std::max(1, gpu_count());
  (void)backend(device);  // or it is Error 78
  check_input(!options.wrap || options.gpu_transport != nccl, Exit::config,
              "comm=nccl with a communicator of the program's own, which NCCL would bypass\n"
              "  Leave --comm out: transfers of GPUs then pass through it, by way of the host.");
  comm_ = chooses_nccl(options, device) ? nccl_world(std::move(comm_), device)
                                        : staged_on_host(std::move(comm_), device);
}

/// True if NCCL moves GPU tensors. Collective; alike on all ranks.
bool World::chooses_nccl(const WorldOptions& options, Device device) {
  using enum GpuTransport;
  GpuTransport wanted = options.gpu_transport;
  if (size() > 1) notices_ = "transport: host memory\n";
  if (options.wrap || wanted == host || (wanted != nccl && size() == 1)) return false;
  std::vector<GpuRank> ranks = gather_gpu_ranks(*host_, gpu_rank_of(device, int(core_share_)));
  std::string obstacle = nccl_obstacle(ranks);
  if (obstacle.empty()) {
    notices_ = fmt::format("transport: NCCL {}\n{}", ranks[0].nccl, nccl_warnings(ranks));
    return true;
  }
  check_input(wanted != nccl, Exit::config, "{}", obstacle);
  check_input(
      wanted == available || gpus_of(ranks) == 1, Exit::config,
      "{}\n  That takes host memory, which is far slower between GPUs: --comm auto takes it "
      "only where all ranks share one.",
      obstacle);
  notices_ = fmt::format("transport: host memory ({})\n", obstacle.substr(0, obstacle.find('\n')));
  return false;
}

World::~World() {
  host_ = nullptr;
  // The end is collective; a rank that failed does not take part.
  if (session_ && !std::uncaught_exceptions())
    session_->close(WrapperComm::innermost(std::move(comm_)));
}

void run_worlds(int ranks, const std::function<void(World&)>& rank, WorldOptions options) {
  if (ranks > 1) prepare_nccl();
  run_thread_ranks(ranks,
                   [&](std::unique_ptr<Communicator> comm) {
                     World world(std::move(comm),
                                 set_rank_threads(parallel::core_share(ranks, ranks)), options);
                     rank(world);
                     world.comm().check_usable();
                     world.host().check_usable();
                   },
                   {.time_limit = options.time_limit});
}

Device device_named(const std::string& text) {
  if (text == "cpu") return cpu;
  if (text == "cuda") return {Device::Kind::cuda, WorldOptions::own_gpu};
  int index = -1;
  if (text.starts_with("cuda:") && parse_number(text.substr(5), index) && index >= 0)
    return {Device::Kind::cuda, index};
  fail(Exit::config, "device `{}`\n  Valid: cpu, cuda, and cuda:N for GPU N, from 0.",
       printable(text));
}

int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  open_closed_streams();
  raise_limit_of_open_files();
  // A write beyond `ulimit -f` then fails with EFBIG, which can be reported.
  std::signal(SIGXFSZ, SIG_IGN);
  std::unique_ptr<Session> session;
  auto failed = [&](const std::exception& e) {
    bool met = session && session->size() > 1;
    int rank = met ? session->rank() : announced_by_launcher().rank;
    // Before ranks know each other only a configuration is wrong for all of them. The pods of a
    // PyTorchJob may have different commands.
    auto* error = dynamic_cast<const Error*>(&e);
    bool announced = error && error->rank() == 0;  // check_announced
    bool all_alike = !met && exit_code(e) == int(Exit::config) && (announced || !of_torchrun());
    if (!all_alike || rank == 0 || first_of_pod() || every_rank_may_speak())
      report_failure(e, rank);
    if (met) session->abort(exit_code(e));
    return exit_code(e);
  };
  try {
    session = std::make_unique<Session>(argc, argv);
    return body(argc, argv);
  } catch (const std::exception& e) {
    return failed(e);
  } catch (...) {
    return failed(std::runtime_error("an exception that is no std::exception"));
  }
}

}  // namespace triax::parallel
