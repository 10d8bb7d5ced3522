#include "core/cuda/cuda.h"

// The emulated device: tensors in host memory, no streams.

namespace triax::cuda::TRIAX_TARGET {

Cuda::Cuda(int index) : index_(index), name_("cuda, emulated") {}
Cuda::~Cuda() = default;
std::shared_ptr<Allocator> Cuda::allocator() { return backend(cpu).allocator(); }
const char* Cuda::name() const { return name_.c_str(); }
Stream Cuda::stream() const { return {}; }

}  // namespace triax::cuda::TRIAX_TARGET
