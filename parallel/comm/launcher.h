#pragma once

// What the launcher of a parallel job (mpirun, srun) says in the environment of its processes.
namespace triax::parallel {

/// How many ranks the launcher started; `size` 1 and `rank` 0 if it says nothing.
struct Announced {
  int rank = 0, size = 1;
  const char* variable = "";  ///< that said the size
};
Announced announced_by_launcher();

/// Throws Error 78 if more ranks were announced than `found`.
void check_announced(int found);

/// Throws Error 78 if a launcher started several processes: each would start the threads of a whole
/// job of its own. For programs whose ranks are threads.
void check_not_launched();

/// Does anything in the environment come from a launcher of parallel jobs? If not, this process was
/// started by hand, and MPI, whose start takes about half a second, is left alone.
bool launched();

}  // namespace triax::parallel
