#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <thread>

#include "core/check.h"
#include "parallel/comm/session.h"

namespace triax::parallel {
namespace {

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

/// scripts/launch.sh sets it: of all reports that it gets it shows the first.
bool every_rank_may_speak() { return number("TRIAX_ONE_REPORT", 0) != 0; }

/// What many ranks find wrong at once is said once: rank 0 speaks at once, and has ended the others
/// before they do.
void wait_for_others_to_speak(int rank) {
  std::this_thread::sleep_for(std::chrono::milliseconds(400 * std::min(rank, 4)));
}

class Unknown final : public std::exception {
  const char* what() const noexcept override { return "an exception that is no std::exception"; }
};

}  // namespace

void say_failure(const std::exception& e, int rank) {
  if (!every_rank_may_speak()) wait_for_others_to_speak(rank);
  std::fflush(stdout);
  std::fputs(failure_report(e).c_str(), stderr);
  std::fflush(stderr);
  // Who fails with this rank, in a checkpoint for one, may still be removing its files.
  if (every_rank_may_speak()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

Announced announced_by_launcher() {
  struct Launcher {
    const char *size, *rank;
  };
  // SLURM_NTASKS also stands in a shell inside an allocation; the tasks of a step are meant here.
  for (Launcher l :
       {Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, Launcher{"PMI_SIZE", "PMI_RANK"},
        Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}})
    if (int size = number(l.size, 1); size > 1) return {number(l.rank, 0), size, l.size};
  return {};
}

bool launched() {
  // Open MPI, PMIx and PRRTE, PMI (MPICH, Intel MPI), Slurm, Flux, Cray PALS and ALPS, IBM JSM.
  for (char** variable = environ; *variable; ++variable)
    for (std::string_view prefix :
         {"OMPI_COMM_", "PMIX_", "PRTE_", "PMI_", "HYDI_", "MPI_LOCAL", "SLURM_STEP",
          "SLURM_PROCID", "FLUX_", "PALS_", "ALPS_", "JSM_"})
      if (std::string_view(*variable).starts_with(prefix)) return true;
  return false;
}

void check_announced(int found) {
  Announced a = announced_by_launcher();
  check_input(a.size <= found, Exit::config,
              "world: the launcher announced {} ranks ({}), but {} found each other\n"
              "  Is triax built with the MPI of this launcher? Without MPI use --comm threads.",
              a.size, a.variable, found);
}

int exit_code(const std::exception& e) {
  if (auto* error = dynamic_cast<const Error*>(&e)) return int(error->code());
  return int(dynamic_cast<const std::bad_alloc*>(&e) ? Exit::memory : Exit::internal);
}

std::string failure_report(const std::exception& e) {
  constexpr int most_lines = 12;
  std::string text = fmt::format("triax: error {}: {}\n", exit_code(e), e.what());
  auto* error = dynamic_cast<const Error*>(&e);
  if (error && error->code() == Exit::internal && !error->place().empty())
    text += fmt::format("  at {}\n", error->place());
  size_t end = 0;
  for (int line = 0; line < most_lines && end < text.size(); ++line) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  std::unique_ptr<Session> session;
  auto failed = [&](const std::exception& e) {
    int rank = session ? session->rank() : announced_by_launcher().rank;
    // Before ranks know each other only a configuration is wrong for all of them.
    bool all_alike = !session && exit_code(e) == int(Exit::config);
    if (!all_alike || rank == 0 || every_rank_may_speak()) say_failure(e, rank);
    if (session && session->size() > 1) session->abort(exit_code(e));
    return exit_code(e);
  };
  try {
    session = std::make_unique<Session>(argc, argv);
    return body(argc, argv);
  } catch (const std::exception& e) {
    return failed(e);
  } catch (...) {
    return failed(Unknown());
  }
}

}  // namespace triax::parallel
