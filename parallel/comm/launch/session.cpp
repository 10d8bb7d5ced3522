#include "triax/parallel/comm/launch/session.h"

#include <mpi.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "triax/core/check.h"
#include "triax/parallel/comm/gpu/nccl_comm.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/comm/processes/mpi_comm.h"
#include "triax/parallel/comm/wait.h"

namespace triax::parallel {
namespace {

bool running() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized && !finalized;
}

/// Returns how many ranks of this host may run on this one's cores: all of them, or only itself if
/// the launcher bound each to its own.
int ranks_sharing_cores(MPI_Comm host, int ranks) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);
  std::vector<cpu_set_t> all(static_cast<size_t>(ranks));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, host);
  int sharing = 0;
  for (cpu_set_t& other : all) {
    cpu_set_t both;
    CPU_AND(&both, &mine, &other);
    sharing += CPU_COUNT(&both) > 0;
  }
  return sharing;
}

}  // namespace

Session::Session(int& argc, char**& argv, std::optional<int> mpi)
    : alone_(!running() && !launched()), mpi_(mpi) {
  check_input(!mpi_ || running(), Exit::config,
              "world: ranks of MPI (WorldOptions::mpi), but MPI does not run\n"
              "  Call MPI_Init_thread before the World is made, and MPI_Finalize after its end.");
  if (alone_) return;
  prepare_nccl();
  Deadline deadline("start of MPI", Deadline::of_start());
  if (!running()) {
    int given = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given);
    owns_ = true;
  }
  MPI_Comm ranks = mpi_ ? MPI_Comm_f2c(*mpi_) : MPI_COMM_WORLD;
  check_input(ranks != MPI_COMM_NULL, Exit::config,
              "world: MPI_COMM_NULL; expected a communicator of ranks, this one among them");
  MPI_Comm_rank(ranks, &rank_);
  MPI_Comm_size(ranks, &size_);
  try {
    if (!mpi_) check_announced(size_);
  } catch (...) {
    if (owns_) MPI_Finalize();
    throw;
  }
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &local_rank_);
  MPI_Comm_size(host, &local_size_);
  sharing_ = ranks_sharing_cores(host, local_size_);
  MPI_Comm_free(&host);
}

Session::~Session() {
  if (!owns_) return;
  Deadline deadline("end of MPI", time_limit_);
  MPI_Finalize();
}

std::unique_ptr<Communicator> Session::open(const WorldOptions& options, bool crowded) {
  if (alone_) {
    check_announced(1);
    return single_rank({.time_limit = options.time_limit});
  }
  return mpi_world({.time_limit = options.time_limit, .crowded = crowded, .ranks = mpi_});
}

void Session::close(std::unique_ptr<Communicator> world) {
  if (!alone_) close_mpi_world(std::move(world));
}

void Session::abort(int code) noexcept {
  std::fflush(nullptr);
  if (!alone_) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace triax::parallel
