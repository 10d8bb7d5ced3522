#pragma once
#include <string>
#include <vector>

#include "triax/core/backend.h"

namespace triax::host {

/// Returns the CPU backend at the best instruction level of this machine. The environment variable
/// TRIAX_CPU_LEVEL forces one of levels(); a level the machine lacks is Error 78.
Backend& backend();

/// Returns the names of the levels built in that run here, best last: `baseline`, `avx2`, `avx512`,
/// `avx512_bf16` (avx512, but products of bf16 as dot products of pairs), `amx` (in tiles; on
/// Linux).
std::vector<std::string> levels();
/// Returns the backend of one level, for tests and benchmarks.
Backend& backend_of(const std::string& level);

/// Frees the blocks in the calling thread's cache.
void trim_memory();

}  // namespace triax::host
