#pragma once
#include <cuda_runtime.h>

namespace triax::cuda {

/// Throws `cuda: CALL: what the library says` unless `status` is success: Error 71 where memory
/// ran out, else Error 70.
void require(cudaError_t status, const char* call);

}  // namespace triax::cuda
