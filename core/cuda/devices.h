#pragma once
#include "core/backend.h"

namespace triax::cuda {

/// GPUs that this process may use; 0 without a driver.
int device_count();

/// Throws Error 78 unless there is a GPU `index`.
void require_device(int index);

/// The backend of GPU `index`, made at first use. Throws Error 78 if there is no such GPU.
Backend& backend_of(int index);

/// Give up the blocks that the calling thread has cached on its GPUs.
void trim_memory();

/// How one of several algorithms that a library has for a product is chosen.
enum class Tuning {
  heuristic,  ///< what the library advises: the same in every run on this kind of GPU
  timed       ///< the fastest of the best few, measured when a shape comes up for the first time;
              ///< another run may choose otherwise, and then sums are made in another order
};
/// For products of `dtype`, in the whole process. f16 and bf16, where speed is asked for, are timed
/// unless something else was set; f32 and f64, where runs are compared, are not.
void set_tuning(DType dtype, Tuning tuning);
Tuning tuning_of(DType dtype);

}  // namespace triax::cuda
