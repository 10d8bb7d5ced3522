#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tests/gpu_on_cpu/runtime.h"

namespace triax::gpu_on_cpu {

/// How many operations of each stream, by its number, are known to be over.
using Clock = std::vector<int64_t>;

/// Says what an operation does to memory; null and memory of the host are left out.
struct Access {
  const void* data;
  size_t bytes;
  bool writes;
};

/// Ends the process if an operation, which is being queued on a stream, meets one of another stream
/// in memory that either writes, with no event and no wait of the host between them
/// (Options::races): copies, fills, products and transfers, not kernels. What is captured is left
/// out. The waits of one thread of the host count for all.
void touch(cudaStream_t stream, const char* what, std::initializer_list<Access> accesses);

// What orders operations.
Clock passed_by(cudaStream_t stream);  ///< behind all that a stream was given
void stream_waits(cudaStream_t stream, const Clock& clock);
void host_waits_for(const Clock& clock);
void join(Clock& into, const Clock& other);
/// Forgets what has touched a block that is freed.
void forget(const void* data, size_t bytes);

}  // namespace triax::gpu_on_cpu
