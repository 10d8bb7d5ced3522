#pragma once
#include <exception>
#include <string>

// This process: its launcher, its share of the cores, and how it reports a failure.
namespace triax::parallel {

/// How many ranks the launcher started; `size` 1 and `rank` 0 if it says nothing. Without a
/// launcher of MPI, RANK and WORLD_SIZE of torchrun count.
struct Announced {
  int rank = 0, size = 1;
  const char* variable = "";  ///< that said the size
};
Announced announced_by_launcher();
/// Was it torchrun, whose ranks do not meet here? Its variables also stand in a PyTorchJob's pods.
bool of_torchrun();
/// Is it, and is this the first process on its host? Nobody reads there what rank 0 says elsewhere.
bool first_of_pod();

/// Throws Error 78 if more ranks were announced than `found`.
void check_announced(int found);

/// Throws Error 78 if a launcher started several processes: each would start the threads of a whole
/// job of its own. `why`: what needs a single one.
void check_not_launched(const std::string& why);

/// Does anything in the environment come from a launcher through which MPI's ranks can meet? If
/// not, MPI, whose start takes about half a second, is left alone. `srun --mpi=none` is no such
/// launcher.
bool launched();

/// Cores this process may run on (its affinity mask, which launchers narrow).
int usable_cores();

/// Cores for each rank, perhaps less than one: those of the affinity mask, which `sharing` ranks
/// have in common, or those that its CPU quota leaves each of the `local` ranks of this host.
double core_share(int sharing, int local);

/// Gives the calling thread, a rank, as many OpenMP threads as it has whole cores, and at least
/// one, unless OMP_NUM_THREADS is set. Returns the number.
int set_rank_threads(double core_share);
/// Throws Error 78 if OMP_NUM_THREADS asks for more than 256 threads and 8 for each core: so many
/// hardly start. Before the first parallel loop, and before ranks meet: they may be on other hosts.
void check_threads();

/// The exit code of an exception: Error::code, 71 out of memory, 74 for a stream of the standard
/// library, 70 others.
int exit_code(const std::exception& e);

/// `what()`, of std::bad_alloc in words.
std::string reason(const std::exception& e);

/// The report: `triax: error 78: ...`, at most 12 lines.
std::string failure_report(const std::exception& e);

/// Reports a failure of this rank (after time for ranks before it to have done so, unless the
/// launcher picks the first report: TRIAX_ONE_REPORT). One process of several adds the line `on
/// rank 3 of 8`, but not to error 78, which all of them find.
void report_failure(const std::exception& e, int rank);

/// scripts/launch.sh sets TRIAX_ONE_REPORT: of all reports that it gets it shows the first.
bool every_rank_may_speak();

}  // namespace triax::parallel
