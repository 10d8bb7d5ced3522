#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "triax/core/cuda/runtime/stream.h"

/// CUDA's threads on the CPU, so that kernels are tested without a GPU: one fiber per thread of a
/// block, blocks one after another. For tests only; launch.h leads here in files that g++ compiles.
namespace triax::cuda::emulation {

/// The order in which blocks, and threads between two waits, take their turns. A kernel's bits must
/// not depend on it: a missing sync() is seen as a difference between orders.
enum class Order { forward, reversed, shuffled };

/// Sets the order of the launches on this host thread from now on.
void set_order(Order order);

/// Returns the number of launches on this host thread, to tell that a kernel ran at all.
int64_t launches();

/// Runs `work` after all that was given to `stream` before: here at once (tests/cuda/emulation), or
/// by the CUDA runtime that tests stand in for.
void enqueue(Stream stream, std::function<void()> work);

/// A launch: `body` is one thread's run with the block's `shared` memory of `shared_bytes`, which
/// holds 0xff (NaN, -1) when a block starts.
struct Job {
  int64_t grid_x, grid_y, grid_z;
  int threads;
  size_t shared_bytes;
  std::function<void(int thread, const int64_t (&block)[3], void* shared)> body;
};

/// Runs a job. Throws Error 70 where CUDA would hang or be undefined: threads that wait at
/// different lines, or for one that has left; that touch the same shared memory with no sync()
/// between them, unless a sanitizer is on (tests/cuda/emulation/races.h); a grid that is empty or
/// too large. Errors thrown by `body` pass through.
void run(const Job& job);

// Functions that a running thread calls (thread.h); `line` tells one wait from another.
void sync(int line);
void sync_warp(int line);
/// Replaces `value` by that of lane `from`.
void exchange(void* value, size_t bytes, int from, int line);
/// Throws Error 70 unless `address` is a multiple of `alignment`.
void require_aligned(const void* address, size_t alignment);

}  // namespace triax::cuda::emulation
