#pragma once
#include <cstddef>
#include <cstdint>

#include "triax/core/numbers/half.h"
#if !defined(__CUDACC__)
#include "triax/core/cuda/runtime/emulation.h"
#endif

// TRIAX_TARGET (device, emulated) is given by the build; see launch.h.

namespace triax::cuda::TRIAX_TARGET {

/// The number of blocks: x up to 2^31 - 1, y and z up to 65535.
struct Grid {
  int64_t x = 1, y = 1, z = 1;
};

/// One thread of a kernel: its place, and all it may do with others. Blocks are rows of threads; a
/// warp is 32 neighbours.
struct Thread {
  int id, threads;  ///< within its block, and the size of that
  Grid block, blocks;

  TRIAX_HD int lane() const { return id % 32; }
  TRIAX_HD int warp() const { return id / 32; }
  TRIAX_HD int warps() const { return threads / 32; }
  /// Return its number among all threads of the launch along x, and their number.
  TRIAX_HD int64_t global() const { return block.x * threads + id; }
  TRIAX_HD int64_t globals() const { return blocks.x * threads; }

  /// Waits for all threads of the block; what they wrote is seen afterwards. Everyone must come to
  /// the same line, or to none.
  TRIAX_HD void sync([[maybe_unused]] int line = __builtin_LINE()) const {
#if defined(__CUDA_ARCH__)
    __syncthreads();
#elif !defined(__CUDACC__)
    emulation::sync(line);
#endif
  }
  /// Waits for the 32 threads of a warp, in the same way.
  TRIAX_HD void sync_warp([[maybe_unused]] int line = __builtin_LINE()) const {
#if defined(__CUDA_ARCH__)
    __syncwarp();
#elif !defined(__CUDACC__)
    emulation::sync_warp(line);
#endif
  }
  /// Returns the `value` of lane `from` of this warp; all 32 lanes must call it on the same line.
  template <class T>
  TRIAX_HD T shuffle(T value, int from, [[maybe_unused]] int line = __builtin_LINE()) const {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
#if defined(__CUDA_ARCH__)
    return __shfl_sync(~0u, value, from);
#elif !defined(__CUDACC__)
    emulation::exchange(&value, sizeof(T), from, line);
#endif
    return value;
  }
  /// Returns the value of the lane whose number differs in the bits of `mask`.
  template <class T>
  TRIAX_HD T shuffle_xor(T value, int mask, [[maybe_unused]] int line = __builtin_LINE()) const {
#if defined(__CUDA_ARCH__)
    return __shfl_xor_sync(~0u, value, mask);
#else
    return shuffle(value, lane() ^ mask, line);
#endif
  }
};

}  // namespace triax::cuda::TRIAX_TARGET
