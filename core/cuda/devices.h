#pragma once
#include "core/backend.h"
#include "core/gpus.h"

namespace triax::cuda {

/// GPUs that this process may use; 0 without a driver.
int device_count();

/// Throws Error 78 unless there is a GPU `index`.
void require_device(int index);

/// See core/gpus.h.
std::string uuid_of(int index);

/// Bytes of its memory that nobody uses. Throws Error 78 if there is no such GPU.
size_t free_memory(int index);

/// The backend of GPU `index`, made at first use. Throws Error 78 if there is no such GPU.
Backend& backend_of(int index);

/// See core/gpus.h.
std::unique_ptr<ProfileClock> clock_of(int index);

/// See core/profile.h.
void begin_range(const char* name);
void end_range();

/// Give up the blocks that the calling thread has cached on its GPUs.
void trim_memory();

/// How one of several algorithms that a library has for a product is chosen.
enum class Tuning {
  heuristic,  ///< what the library advises: the same in every run on this kind of GPU
  timed       ///< the fastest of the best few, measured when a shape comes up for the first time;
              ///< another run may choose otherwise, and then sums are made in another order
};
/// For products of `dtype`, in the whole process; heuristic unless set.
void set_tuning(DType dtype, Tuning tuning);
Tuning tuning_of(DType dtype);

/// See core/gpus.h: sets the tuning of f16 and bf16 too.
void set_bits(GpuBits bits);
GpuBits bits();

}  // namespace triax::cuda
