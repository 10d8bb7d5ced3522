#pragma once
#include "triax/core/backend.h"
#include "triax/core/gpus.h"

namespace triax::cuda {

/// Throws Error 78 unless there is a GPU `index`.
void require_device(int index);

/// Returns the backend of GPU `index`, made at first use. Throws Error 78 if there is no such GPU.
Backend& backend_of(int index);

/// Frees the blocks that the calling thread has cached on its GPUs.
void trim_memory();

/// The way in which one of a library's several algorithms for a product is chosen.
enum class Tuning {
  heuristic,  ///< the one the library advises: the same in every run on this kind of GPU
  timed       ///< the fastest of the best few, measured when a shape comes up for the first time;
              ///< another run may choose otherwise, and then sums are made in another order
};
/// Sets the tuning of products of `dtype` in the whole process; heuristic unless set.
void set_tuning(DType dtype, Tuning tuning);
Tuning tuning_of(DType dtype);

/// Returns what set_gpu_bits() was told, which sets the tuning of f16 and bf16 too.
GpuBits bits();

}  // namespace triax::cuda
