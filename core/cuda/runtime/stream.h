#pragma once

namespace triax::cuda {

/// The queue of kernels: a cudaStream_t, for files that nvcc does not see too. Null in the
/// emulation that has none.
struct Stream {
  void* handle = nullptr;
};

}  // namespace triax::cuda
