#include "triax/parallel/comm/process.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <limits>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/shared/team.h"

namespace triax::parallel {
namespace {

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

/// True for what std::thread throws at a limit of processes.
bool no_thread(const std::exception& e) {
  auto* error = dynamic_cast<const std::system_error*>(&e);
  return error && error->code() == std::errc::resource_unavailable_try_again &&
         !dynamic_cast<const std::filesystem::filesystem_error*>(&e);
}

constexpr const char* torchrun_size = "WORLD_SIZE";

/// Delays this rank's report, since many ranks may find one error: rank 0 reports at once and ends
/// the job, before the others' turn. After a failure ranks cannot agree in another way: their
/// communicators can no longer be used.
void wait_for_turn(int rank) {
  constexpr auto turn = std::chrono::milliseconds(400);  // mpirun ends a job in about 300 ms
  std::this_thread::sleep_for(turn * std::min(rank, 4));
}

constexpr double unlimited = std::numeric_limits<double>::infinity();

/// Returns the quota in cores. Files hold `max`, -1 or microseconds of CPU time in each period.
double quota_in(const std::string& directory) {
  double quota = 0, period = 0;
  std::ifstream of_version_2(directory + "/cpu.max");
  std::ifstream of_version_1(directory + "/cpu.cfs_quota_us");
  bool known = of_version_2 >> quota >> period ||
               (of_version_1 >> quota && std::ifstream(directory + "/cpu.cfs_period_us") >> period);
  return known && quota > 0 && period > 0 ? quota / period : unlimited;
}

/// Returns the least quota of a group and of all groups around it. Inside a container its path may
/// be that of the host: then only the last, the mount itself, is there.
double least_quota(const std::string& mount, std::string path) {
  double least = unlimited;
  for (; !path.empty(); path.resize(path.rfind('/')))
    least = std::min(least, quota_in(mount + path));
  return std::min(least, quota_in(mount));
}

}  // namespace

Announced announced_by_launcher() {
  struct Launcher {
    const char *size, *rank;
  };
  // RANK of torchrun also stands in the pods of a PyTorchJob: there mpirun or srun counts.
  bool torchrun = !launched() && std::getenv("RANK") && std::getenv(torchrun_size);
  if (int size = number(torchrun_size, 1); torchrun && size > 1)
    return {number("RANK", 0), size, torchrun_size};
  // SLURM_NTASKS also stands in a shell inside an allocation; the tasks of a step are meant here.
  for (Launcher l :
       {Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, Launcher{"PMI_SIZE", "PMI_RANK"},
        Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}})
    if (int size = number(l.size, 1); size > 1) return {number(l.rank, 0), size, l.size};
  return {};
}

bool launched() {
  // Open MPI, PMIx and PRRTE, PMI (MPICH, Intel MPI), Flux, Cray PALS and ALPS, IBM JSM. Not Slurm:
  // through its own variables alone ranks cannot meet, and Open MPI would end each of them.
  for (char** variable = environ; *variable; ++variable)
    for (std::string_view prefix : {"OMPI_COMM_", "PMIX_", "PRTE_", "PMI_", "HYDI_", "MPI_LOCAL",
                                    "FLUX_", "PALS_", "ALPS_", "JSM_"})
      if (std::string_view(*variable).starts_with(prefix)) return true;
  return false;
}

bool of_torchrun() {
  const char* variable = announced_by_launcher().variable;
  return std::string_view(variable) == torchrun_size;
}

bool first_of_pod() { return of_torchrun() && number("LOCAL_RANK", 0) == 0; }

void check_announced(int found) try {
  Announced a = announced_by_launcher();
  check_input(
      !of_torchrun(), Exit::config,
      "world: torchrun, accelerate or deepspeed announced {} ranks ({}), but ranks of triax "
      "meet through MPI\n"
      "  Start them with: mpirun -np {} and the same command, scripts/launch.sh -n {} or "
      "srun --mpi=pmix; or one\n"
      "  process with --comm threads --ranks {}. Is no launcher at work? Then: unset RANK {}",
      a.size, a.variable, a.size, a.size, a.size, a.variable);
  check_input(
      a.size <= found, Exit::config,
      "world: the launcher announced {} ranks ({}), but {} found each other\n"
      "  srun connects them with --mpi=pmix, if srun --mpi=list has it; else use mpirun or\n"
      "  scripts/launch.sh -n {}. Is triax built with the MPI of this launcher? Without MPI use\n"
      "  one process: --comm threads --ranks {}",
      a.size, a.variable, found, a.size, a.size);
} catch (const Error& e) {
  throw Error(e.code(), e.what(), e.place(), 0);  // all ranks throw it, and one reports it
}

void check_not_launched(const std::string& why) {
  Announced a = announced_by_launcher();
  check_input(a.size == 1, Exit::config,
              "{}, but a launcher started {} processes ({})\n"
              "  Each of them would run the whole job. Start the program without a launcher.",
              why, a.size, a.variable);
}

double cpu_quota(const ControlGroups& groups) {
  double least = unlimited;
  std::ifstream lines(groups.of_process);
  for (std::string line; std::getline(lines, line);) {  // `4:cpu,cpuacct:/path`, `0::/path`
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (!path.starts_with('/') || path.find("/..") != path.npos) path = "";
    std::vector<std::string> mounts;
    if (controllers.empty()) mounts = {"", "/unified"};
    else if (("," + controllers + ",").find(",cpu,") != line.npos)
      mounts = {"/" + controllers, "/cpu"};
    for (auto& mount : mounts) least = std::min(least, least_quota(groups.mount + mount, path));
  }
  return least;
}

double core_share(int sharing, int local) {
  return std::min(double(usable_cores()) / sharing, cpu_quota() / local);
}

int set_rank_threads(double core_share) {
  if (threads_asked_for() == 0) set_threads(std::max(1, int(core_share)));
  return team_threads();
}

void check_threads() {
  int threads = team_threads(), cores = usable_cores(), most = std::max(256, 8 * cores);
  if (threads_asked_for() < 0)
    fail(Exit::config, "OMP_NUM_THREADS: '{}'; expected a number of threads for each rank, 1 to {}",
         printable(std::getenv("OMP_NUM_THREADS")), most);
  check_input(threads <= most, Exit::config,
              "OMP_NUM_THREADS: {} threads for each rank on {} cores; expected 1 to {}", threads,
              cores, most);
}

bool every_rank_may_speak() { return number("TRIAX_ONE_REPORT", 0) != 0; }

void report_failure(const std::exception& e, int rank) {
  if (!every_rank_may_speak()) wait_for_turn(rank);
  std::fflush(stdout);
  std::string text = failure_report(e);
  auto* error = dynamic_cast<const Error*>(&e);
  int from = error && error->rank() >= 0 ? error->rank() : rank, code = exit_code(e);
  bool of_all = code == int(Exit::config) || code == int(Exit::non_finite);  // on all ranks alike
  if (int ranks = announced_by_launcher().size; ranks > 1 && !of_all && !of_torchrun())
    text += fmt::format("  on rank {} of {}\n", from, ranks);
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

int exit_code(const std::exception& e) {
  if (auto* error = dynamic_cast<const Error*>(&e)) return int(error->code());
  if (dynamic_cast<const std::bad_alloc*>(&e) || no_thread(e)) return int(Exit::memory);
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&e)) return int(Exit::io);
  return int(dynamic_cast<const std::ios_base::failure*>(&e) ? Exit::io : Exit::internal);
}

std::string reason(const std::exception& e) {
  if (no_thread(e))
    return "a thread cannot be started\n"
           "  Raise the limit of processes (ulimit -u; pids.max of a container), or take fewer "
           "ranks,\n"
           "  --workers or OMP_NUM_THREADS.";
  return dynamic_cast<const std::bad_alloc*>(&e) ? "out of host memory" : e.what();
}

std::string failure_report(const std::exception& e) {
  constexpr int most_lines = 12;
  std::string text = fmt::format("triax: error {}: {}\n", exit_code(e), reason(e));
  auto* error = dynamic_cast<const Error*>(&e);
  if (error && error->code() == Exit::internal && !error->place().empty())
    text += fmt::format("  at {}\n", error->place());
  size_t end = 0;
  for (int line = 0; line < most_lines && end < text.size(); ++line) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

}  // namespace triax::parallel
