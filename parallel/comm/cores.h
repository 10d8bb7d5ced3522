#pragma once

namespace triax::parallel {

/// Cores this process may run on (its affinity mask, which launchers narrow).
int usable_cores();

/// Give the calling thread, one of `ranks` that share this process's or host's `cores`, its share
/// of OpenMP threads, unless OMP_NUM_THREADS is set. Returns the number.
int set_rank_threads(int cores, int ranks);

}  // namespace triax::parallel
