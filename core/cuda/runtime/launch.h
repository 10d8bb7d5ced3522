#pragma once
#include <type_traits>
#include <utility>

#include "triax/core/cuda/runtime/stream.h"
#include "triax/core/cuda/runtime/thread.h"
#if defined(__CUDACC__)
#include <cuda_runtime.h>

#include <atomic>

#include "triax/core/cuda/runtime/status.h"
#endif

// How a kernel is written here. The same source is compiled twice: by nvcc for the GPU
// (TRIAX_TARGET=device) and by the host's compiler for tests, which run it in fibers on the CPU
// (TRIAX_TARGET=emulated, core/cuda/runtime/emulation.h). So
//   * a kernel is a trivially copyable struct in core/cuda/kernels/, namespace
//     triax::cuda::TRIAX_TARGET. Its members are the arguments (pointers, sizes: at most 4 KiB); it
//     has `static constexpr int threads`, a multiple of 32, and
//         TRIAX_HD void operator()(const Thread& t) const;
//     or, with a `struct Shared` of plain arrays for what its threads share,
//         TRIAX_HD void operator()(const Thread& t, Shared& shared) const;
//   * threads meet only through `t` (thread.h): no intrinsics, no threadIdx, no inline PTX, no
//     __CUDA_ARCH__ in kernels. Blocks never wait for each other. No thread returns before a
//     sync() that others reach: a row too many is skipped with `if`, not `return`. All lanes of a
//     warp take part in a shuffle;
//   * shared memory is uninitialised when a block starts, and between a write and another thread's
//     read stands a sync(). Sums are made in the accumulator dtype in an order that depends on
//     sizes alone: no float atomics, so bits repeat;
//   * memory is read and written 16 bytes at a time (pack.h), with a tail and a way for addresses
//     that are no multiple of 16;
//   * the .cu file beside it is the host's side: a member of Cuda (cuda.h) that picks dtypes and
//     the grid and calls launch(). It throws nothing of fmt's (nvcc cannot compile that);
//   * tests/cuda/ runs the member against the CPU backend, in three orders of threads with equal
//     bits, at sizes 0, 1, 31, 33, 1000 (tests/cuda/emulated.h). Take a sync() out once and see the
//     test fail.

namespace triax::cuda::TRIAX_TARGET {

/// True if kernels of type K share memory.
template <class K>
concept Sharing = requires {
  typename K::Shared;
};

template <class K> constexpr size_t shared_bytes() {
  if constexpr (Sharing<K>) return sizeof(typename K::Shared);
  else return 0;
}

template <class K> constexpr void check_kernel() {
  static_assert(std::is_trivially_copyable_v<K> && sizeof(K) <= 4096);
  static_assert(K::threads % 32 == 0 && K::threads >= 32 && K::threads <= 1024);
  static_assert(shared_bytes<K>() <= 163 * 1024, "more than a block of sm_80 can have");
}

#if defined(__CUDACC__)

template <class K>
__global__ void __launch_bounds__(K::threads) entry(const __grid_constant__ K kernel) {
  extern __shared__ __align__(16) char shared[];
  Thread t{int(threadIdx.x),
           K::threads,
           {blockIdx.x, blockIdx.y, blockIdx.z},
           {gridDim.x, gridDim.y, gridDim.z}};
  if constexpr (Sharing<K>) kernel(t, *reinterpret_cast<typename K::Shared*>(shared));
  else kernel(t);
}

/// True if a block of the current GPU has K's shared memory. sm_80 and sm_90 do; sm_86 and sm_89
/// have 99 KB. Asked once for each GPU: then K may use all of it.
template <class K> bool fits() {
  constexpr int bytes = int(shared_bytes<K>());
  if (bytes <= 48 * 1024) return true;
  static std::atomic<uint64_t> fit{0}, fails{0};  // a bit for each GPU
  int device = 0, most = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  uint64_t bit = uint64_t{1} << device;
  if (fit & bit) return true;
  if (fails & bit) return false;
  require(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "cudaDeviceGetAttribute");
  if (bytes > most) fails |= bit;
  if (bytes > most) return false;
  require(cudaFuncSetAttribute(entry<K>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "cudaFuncSetAttribute");
  fit |= bit;
  return true;
}

/// Starts `kernel` on `stream`; returns at once. Throws Error 70 with CUDA's text if it could not
/// be started. The grid must not be empty.
template <class K> void launch(Stream stream, const Grid& grid, const K& kernel) {
  check_kernel<K>();
  constexpr size_t bytes = shared_bytes<K>();
  require(fits<K>() ? cudaSuccess : cudaErrorInvalidConfiguration, "shared memory of a kernel");
  dim3 blocks(unsigned(grid.x), unsigned(grid.y), unsigned(grid.z));
  entry<K><<<blocks, K::threads, bytes, static_cast<cudaStream_t>(stream.handle)>>>(kernel);
  require(cudaGetLastError(), "kernel launch");
}

#else

template <class K> bool fits() { return true; }

template <class K> void launch(Stream stream, const Grid& grid, const K& kernel) {
  check_kernel<K>();
  auto body = [grid, kernel](int id, const int64_t(&at)[3], [[maybe_unused]] void* shared) {
    Thread t{id, K::threads, {at[0], at[1], at[2]}, grid};
    if constexpr (Sharing<K>) kernel(t, *static_cast<typename K::Shared*>(shared));
    else kernel(t);
  };
  emulation::Job job{grid.x, grid.y, grid.z, K::threads, shared_bytes<K>(), body};
  emulation::enqueue(stream, [job = std::move(job)] { emulation::run(job); });
}

#endif

}  // namespace triax::cuda::TRIAX_TARGET
