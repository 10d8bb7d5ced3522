#pragma once
#include <exception>
#include <string>

// This process: launcher, share of the cores, failure reports.
namespace triax::parallel {

/// The ranks that the launcher started; `size` 1 and `rank` 0 if it says nothing. Without a
/// launcher of MPI, RANK and WORLD_SIZE of torchrun count.
struct Announced {
  int rank = 0, size = 1;
  const char* variable = "";  ///< the variable that gave the size
};
Announced announced_by_launcher();
/// True for torchrun, whose ranks do not meet here. A PyTorchJob's pods have its variables too.
bool of_torchrun();
/// True for the first process of torchrun on a host: rank 0 may report on another host.
bool first_of_pod();

/// Returns the name of this host, `?` if it has none.
std::string host_name();

/// Throws Error 78 if more ranks were announced than `found`.
void check_announced(int found);

/// Throws Error 78 if a launcher started several processes: each would start the threads of a whole
/// job. `why`: what needs a single process.
void check_not_launched(const std::string& why);

/// True if the environment names a launcher through which MPI's ranks can meet. If not, MPI, whose
/// start takes about half a second, is left alone. `srun --mpi=none` is no such launcher.
bool launched();

/// The paths where Linux lists a process's control groups, and their limits.
struct ControlGroups {
  std::string of_process = "/proc/self/cgroup", mount = "/sys/fs/cgroup";
};

/// Returns the CPU quota of this process in cores, as containers have it: the least of its control
/// group's and of those around it, in both versions of control groups (cpu.max; cpu.cfs_quota_us).
/// Infinity without one.
double cpu_quota(const ControlGroups& groups = {});

/// Returns the cores for each rank, perhaps less than one: those of the affinity mask, shared by
/// `sharing` ranks, or those that the CPU quota leaves each of the `local` ranks of this host.
double core_share(int sharing, int local);

/// Gives the calling thread, a rank, as many threads as it has whole cores, and at least
/// one, unless OMP_NUM_THREADS is set. Returns the number.
int set_rank_threads(double core_share);
/// Throws Error 78 if OMP_NUM_THREADS asks for more than 256 threads and 8 for each core: so many
/// hardly start. Comes before the first parallel loop, and before ranks of other hosts are met.
void check_threads();

/// Returns the exit code of an exception: Error::code, 71 out of memory, 74 for a stream of the
/// standard library, 70 others.
int exit_code(const std::exception& e);

/// Returns `what()`, in words for std::bad_alloc.
std::string reason(const std::exception& e);

/// Returns the report: `triax: error 78: ...`, at most 12 lines.
std::string failure_report(const std::exception& e);

/// Reports a failure of this rank, after time for lower ranks to report first (unless
/// TRIAX_ONE_REPORT: the launcher picks the first report). One process of several adds the line `on
/// rank 3 of 8`, but not to a config error (78), which all of them find.
void report_failure(const std::exception& e, int rank);

/// True if scripts/launch.sh has set TRIAX_ONE_REPORT: it shows the first of all reports.
bool every_rank_may_speak();

}  // namespace triax::parallel
