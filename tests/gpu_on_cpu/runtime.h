#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

/// A GPU made of CPU threads, for tests: definitions of the functions of the CUDA runtime that
/// triax calls, to be linked in place of libcudart. Kernels run in fibers
/// (core/cuda/runtime/emulation.h).
///
/// A stream is a thread that takes its work in order, later than the host and at its own pace;
/// events are the only order between streams. Device memory can be touched only while some stream
/// works, so that a host that reads an address of it is stopped by the memory's protection. What is
/// captured is kept and run again by every launch of the graph. What CUDA refuses while a stream
/// captures is refused here.
namespace triax::gpu_on_cpu {

struct Options {
  int devices = 4;
  size_t memory = size_t{1} << 30;  ///< bytes of each
  int delay = 20;                   ///< microseconds that a stream may idle before each work
  int processors = 132;             ///< of each; kernels of NCCL hold theirs while they wait
  bool lazy = false;                ///< a kernel's first launch waits for the device
  int malloc_waits = 0;             ///< cudaMalloc waits for the device; 2: cudaMallocHost, too
  bool races = false;               ///< operations that nothing orders are looked for (races.h)
  size_t nccl_room = 0;             ///< bytes from one rank to another that need no receiver yet
  size_t nccl_memory = 0;           ///< bytes that a communicator takes at its first transfer
};
/// Before the first call of CUDA. The program's default comes from the environment (README.md).
void configure(const Options& options);

/// Append work to a stream, or to the graph that is being captured from it. What it throws becomes
/// the stream's error: cudaErrorLaunchFailure in every later call.
void enqueue(cudaStream_t stream, std::function<void()> work);
/// Is the stream being captured?
bool capturing(cudaStream_t stream);

/// As long as one lives, whoever asks for an event waits, as for a lock of the driver.
std::unique_lock<std::mutex> hold_driver();

/// Calls so far, of all threads, to show what a steady step does not do.
struct Calls {
  int64_t allocations = 0;  ///< of device memory
  int64_t pinned = 0;       ///< of pinned memory
  int64_t host_waits = 0;   ///< the host waited for a stream, an event or the device
  int64_t works = 0;        ///< kernels, copies and fills queued
  int64_t questions = 0;    ///< how many devices there are
};
Calls calls();

}  // namespace triax::gpu_on_cpu
