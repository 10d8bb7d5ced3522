#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "triax/core/device.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/comm/wrapper_comm.h"

namespace triax::parallel {

class Session;

/// The transport of GPU tensors between ranks: NCCL, or the host's transport through host memory.
/// `available`: NCCL if there are several ranks and they can use it, else the host. `automatic`:
/// likewise, but ranks on several GPUs that cannot use NCCL are an error.
enum class GpuTransport { automatic, available, nccl, host };

struct WorldOptions {
  double time_limit = Group::default_time_limit();  ///< seconds
  /// The device of the tensors that `comm()` moves. For GPU `own_gpu` it is the one whose number is
  /// the rank's among the ranks of its host, modulo the GPUs that this process may use.
  Device device = cpu;
  GpuTransport gpu_transport = GpuTransport::automatic;
  WrapComm wrap = {};  ///< wraps the transport of `comm()`, below the mover of GPU tensors
  /// The ranks, of a program that has started MPI itself: MPI_Comm_c2f(c) of a communicator c,
  /// which is copied. Without it they are all processes. Cores and GPUs of a host are shared out
  /// among these ranks: several groups on one host need OMP_NUM_THREADS and a `device` with an
  /// index.
  std::optional<int> mpi = {};
  static constexpr int own_gpu = -1;
};

/// All ranks of a run, as one of them sees it. Ranks are the processes that mpirun or srun
/// started, or the threads of `run_worlds`; a process started by hand is a world of one.
class World : Immovable {
 public:
  /// Starts MPI if triax was built with it and a launcher is at work, and gives this rank its share
  /// of the host's cores as threads (unless OMP_NUM_THREADS is set). Collective. Throws
  /// Error 78 if a launcher announced more ranks than there are, if GPUs are missing or too few for
  /// the transport asked for, or if ranks have several GPUs and `automatic` finds that NCCL cannot
  /// be used, or if `options.mpi` is given and MPI does not run. Only a program that has started
  /// MPI may have several at a time. argc and argv may lose MPI's arguments.
  World(int& argc, char**& argv, WorldOptions options = {});
  /// Makes the world of a rank that is a thread.
  World(std::unique_ptr<Communicator> comm, int threads, WorldOptions options = {});
  /// Ends it. Collective, in normal flow. Communicators split from it must be gone.
  ~World();

  /// Returns the data plane, for tensors on its `device()` and on the CPU.
  Communicator& comm() { return *comm_; }
  /// Returns a separate CPU communicator: hashes of configurations, errors, barriers around files.
  Communicator& host() { return *host_; }
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  /// Returns this rank's number among the ranks of this host.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  /// Returns lines to print when a run starts: the transport of GPU tensors, and warnings about it.
  /// Alike on all ranks; empty without several ranks on GPUs.
  const std::string& notices() const { return notices_; }
  /// Returns the threads of this rank.
  int threads() const { return threads_; }
  /// Returns the cores for each rank of this host; with fewer than `threads()` ranks are slower.
  double core_share() const { return core_share_; }

 private:
  void bind(const WorldOptions& options);
  bool chooses_nccl(const WorldOptions& options, Device device);
  std::unique_ptr<Session> session_;  ///< null: the rank is a thread
  std::unique_ptr<Communicator> comm_, host_;
  int local_rank_ = 0, local_size_ = 1, threads_ = 1;
  std::string notices_;
  double core_share_ = 1;
};

/// Runs `rank` on `ranks` threads of this process, each with a World. As `run_ranks`.
void run_worlds(int ranks, const std::function<void(World& world)>& rank,
                WorldOptions options = {});

/// Runs `body`, a whole program, and returns the value for `main`. An exception of `body` becomes
/// its exit code (Error::code; 71 out of memory; 70 others) and one report, last on stderr, from
/// the rank that failed first; all other ranks are ended and stay silent.
int run_main(int argc, char** argv, const std::function<int(int argc, char** argv)>& body);

/// Returns the device of `cpu`, `cuda:N`, or `cuda`, which is a GPU of each rank's own
/// (WorldOptions::own_gpu). Throws Error 78 for another text.
Device device_named(const std::string& text);

}  // namespace triax::parallel
