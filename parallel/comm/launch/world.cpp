#include <algorithm>
#include <exception>

#include "core/backend.h"
#include "core/check.h"
#include "core/gpus.h"
#include "parallel/comm/cores.h"
#include "parallel/comm/gpu/device_comm.h"
#include "parallel/comm/gpu/host_staged.h"
#include "parallel/comm/gpu/nccl_comm.h"
#include "parallel/comm/launch/session.h"

// A World, whatever started its ranks.

namespace triax::parallel {
namespace {

Communicator::Seat everybody(int rank) { return {0, rank}; }

}  // namespace

World::World(int& argc, char**& argv, WorldOptions options)
    : session_(std::make_unique<Session>(argc, argv)),
      local_rank_(session_->local_rank()),
      local_size_(session_->local_size()) {
  int cores = usable_cores();
  threads_ = set_rank_threads(cores, session_->sharing());
  comm_ = session_->open(options, session_->sharing() * threads_ > cores);
  host_ = comm_->split(everybody, "host");
  bind(options);
}

World::World(std::unique_ptr<Communicator> comm, int threads, WorldOptions options)
    : comm_(std::move(comm)),
      host_(comm_->split(everybody, "host")),
      local_rank_(comm_->rank()),
      local_size_(comm_->size()),
      threads_(threads) {
  bind(options);
}

void World::bind(const WorldOptions& options) {
  using enum GpuTransport;
  Device device = options.device;
  if (device.kind != Device::Kind::cuda) return;
  if (device.index == WorldOptions::own_gpu) device.index = local_rank_ % std::max(1, gpu_count());
  (void)backend(device);  // or it is Error 78
  bool ask = options.gpu_transport == nccl || (options.gpu_transport == automatic && size() > 1);
  std::string obstacle = ask ? nccl_obstacle(*host_, device) : "not wanted";
  check_input(options.gpu_transport != nccl || obstacle.empty(), Exit::config, "{}", obstacle);
  comm_ = obstacle.empty() ? nccl_world(std::move(comm_), device)
                           : staged_on_host(std::move(comm_), device);
}

World::~World() {
  host_ = nullptr;
  // The end is collective; a rank that failed does not come to it.
  if (session_ && !std::uncaught_exceptions())
    session_->close(DeviceComm::host_of(std::move(comm_)));
}

void run_worlds(int ranks, const std::function<void(World&)>& rank, WorldOptions options) {
  prepare_nccl();
  run_thread_ranks(ranks,
                   [&](std::unique_ptr<Communicator> comm) {
                     World world(std::move(comm), set_rank_threads(usable_cores(), ranks), options);
                     rank(world);
                     world.comm().check_usable();
                     world.host().check_usable();
                   },
                   {.time_limit = options.time_limit});
}

}  // namespace triax::parallel
