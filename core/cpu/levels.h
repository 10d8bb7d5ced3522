#pragma once
#include <string>
#include <vector>

#include "core/backend.h"

namespace triax::host {

/// The CPU backend at the best instruction level this machine has. The environment variable
/// TRIAX_CPU_LEVEL forces one of levels(); a level the machine lacks is Error 78.
Backend& backend();

/// Names of the levels built in that run here, best last: `baseline`, `avx2`, `avx512`,
/// `amx` (avx512, but products of bf16 in tiles; on Linux).
std::vector<std::string> levels();
/// The backend of one level, for tests and benchmarks.
Backend& backend_of(const std::string& level);

/// Give up what the calling thread's cache of blocks holds.
void trim_memory();

}  // namespace triax::host
