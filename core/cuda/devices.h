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

}  // namespace triax::cuda
