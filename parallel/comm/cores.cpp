#include "parallel/comm/cores.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace triax::parallel {

int usable_cores() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1, int(std::thread::hardware_concurrency()));
}

int set_rank_threads(int cores, int ranks) {
  if (!std::getenv("OMP_NUM_THREADS")) omp_set_num_threads(std::max(1, cores / ranks));
  return omp_get_max_threads();
}

}  // namespace triax::parallel
