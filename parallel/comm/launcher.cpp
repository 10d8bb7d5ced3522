#include "parallel/comm/launcher.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "core/check.h"

namespace triax::parallel {
namespace {

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

}  // namespace

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

void check_not_launched() {
  Announced a = announced_by_launcher();
  check_input(a.size == 1, Exit::config,
              "ranks are to be threads of one process, but a launcher started {} processes ({})\n"
              "  Each of them would run the whole job. Start the program by itself, or leave out "
              "--comm threads.",
              a.size, a.variable);
}

}  // namespace triax::parallel
