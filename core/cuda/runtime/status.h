#pragma once
#include <cuda_runtime.h>

namespace triax::cuda {

/// Throws `cuda: CALL: the library's text` unless `status` is success: Error 71 if memory ran out,
/// else Error 70.
void require(cudaError_t status, const char* call);

}  // namespace triax::cuda
