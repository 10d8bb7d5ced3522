#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "core/profile.h"

namespace triax {

/// GPUs that this process may use; 0 in a build without CUDA and where there is no driver.
int gpu_count();
/// A name of GPU `index` that no other has, on any host. Throws Error 78 if there is no such GPU.
std::string gpu_uuid(int index);
/// Bytes of GPU `index`'s memory that nobody uses. Throws Error 78 if there is no such GPU.
size_t gpu_memory(int index);

/// Tells when GPU `index` has come to what the calling thread queued before a mark, on its stream.
/// Throws Error 78 if there is no such GPU.
std::unique_ptr<ProfileClock> gpu_clock(int index);

/// Whether the bits of results on GPUs repeat from run to run on the same kind of GPU, or kernels
/// are picked and made for speed alone: algorithms of f16 and bf16 products by timing them, sums in
/// the backward of attention by atomics.
enum class GpuBits { repeat, may_differ };
/// Of this process; `repeat` unless set. Before its first tensor on a GPU.
void set_gpu_bits(GpuBits bits);

/// A named range of the host's time in profilers of GPUs (NVTX). Nothing in a build without CUDA.
void begin_gpu_range(const char* name);
void end_gpu_range();

}  // namespace triax
