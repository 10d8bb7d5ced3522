#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "triax/core/profile.h"

namespace triax {

/// Returns the GPUs that this process may use; 0 in a build without CUDA or without a driver.
int gpu_count();
/// Returns a name of GPU `index`, unique across hosts. Throws Error 78 if there is no such GPU.
std::string gpu_uuid(int index);
/// Returns the free bytes of GPU `index`'s memory. Throws Error 78 if there is no such GPU.
size_t gpu_memory(int index);

/// Returns a clock that tells when GPU `index` reached what the calling thread queued on its stream
/// before a mark. Throws Error 78 if there is no such GPU.
std::unique_ptr<ProfileClock> gpu_clock(int index);

/// Whether results on GPUs are bitwise reproducible on the same kind of GPU, or kernels are chosen
/// and made for speed alone: algorithms of f16 and bf16 products by timing them, sums in the
/// backward of attention by atomics.
enum class GpuBits { repeat, may_differ };
/// Sets the bits for this process; `repeat` unless set. Call it before the first tensor on a GPU.
void set_gpu_bits(GpuBits bits);

/// Begins a named range of the host's time in GPU profilers (NVTX). Does nothing without CUDA.
void begin_gpu_range(const char* name);
void end_gpu_range();

}  // namespace triax
