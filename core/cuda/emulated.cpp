#include "core/cuda/cuda.h"

// The emulated device: tensors in host memory, no streams.

namespace triax::cuda::TRIAX_TARGET {

Cuda::Cuda(int index) : index_(index) {}
Cuda::~Cuda() = default;
std::shared_ptr<Allocator> Cuda::allocator() { return backend(cpu).allocator(); }
const char* Cuda::name() const { return "cuda, emulated"; }
Stream Cuda::stream() const { return {}; }

}  // namespace triax::cuda::TRIAX_TARGET
