#include <mutex>
#include <string>

#include "core/cuda/context.h"
#include "core/cuda/cuda.h"
#include "core/cuda/devices.h"

// The GPU behind a Cuda; the emulated one is in emulated.cpp.

namespace triax::cuda {

namespace device {

Cuda::Cuda(int index) : index_(index) {
  require_device(index);
  cudaDeviceProp device;
  require(cudaGetDeviceProperties(&device, index), "cudaGetDeviceProperties");
  name_ = std::string(device.name) + ", sm_" + std::to_string(device.major * 10 + device.minor);
}
Cuda::~Cuda() = default;
std::shared_ptr<Allocator> Cuda::allocator() { return context(index_).pool(); }
const char* Cuda::name() const { return name_.c_str(); }
Stream Cuda::stream() const { return context(index_).stream(); }

}  // namespace device

Backend& backend_of(int index) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<device::Cuda>> backends;
  require_device(index);
  std::lock_guard guard(mutex);
  if (backends.size() <= size_t(index)) backends.resize(size_t(index) + 1);
  auto& backend = backends[size_t(index)];
  if (!backend) backend = std::make_unique<device::Cuda>(index);
  return *backend;
}

}  // namespace triax::cuda
