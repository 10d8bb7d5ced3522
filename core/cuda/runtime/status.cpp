#include "triax/core/cuda/runtime/status.h"

#include "triax/core/check.h"
#include "triax/core/cuda/runtime/devices.h"

namespace triax::cuda {

void require(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // or the next call would report it once more
  fail(status == cudaErrorMemoryAllocation ? Exit::memory : Exit::internal, "cuda: {}: {} ({})",
       call, cudaGetErrorString(status), cudaGetErrorName(status));
}

void require_device(int index) {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    int driver = 0;
    cudaDriverGetVersion(&driver);  // 0 without one
    bool too_old = status == cudaErrorInsufficientDriver && driver / 1000 < CUDART_VERSION / 1000;
    check_input(driver == 0 || !too_old, Exit::config,
                "device: cuda:{} asked for, but the driver is one for CUDA {}.{}; this build needs "
                "one for CUDA {}.0{}",
                index, driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                CUDART_VERSION >= 13000
                    ? "\n  Update the driver: CUDA 13 needs version 580 or later."
                    : "");
    fail(Exit::config, "device: cuda:{} asked for, but no GPU was found: {}", index,
         cudaGetErrorString(status));
  }
  check_input(count > 0, Exit::config, "device: cuda:{} asked for, but no GPU was found", index);
  check_input(index >= 0 && index < count, Exit::config,
              "device: cuda:{} asked for; this process sees {} GPU{}, numbered from 0", index,
              count, count == 1 ? "" : "s");
}

}  // namespace triax::cuda

namespace triax {

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::string gpu_uuid(int index) {
  cuda::require_device(index);
  cudaDeviceProp properties;
  cuda::require(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  std::string text;
  for (char byte : properties.uuid.bytes) text += fmt::format("{:02x}", uint8_t(byte));
  return text;
}

size_t gpu_memory(int index) {
  cuda::require_device(index);
  cuda::require(cudaSetDevice(index), "cudaSetDevice");
  size_t unused = 0, total = 0;
  cuda::require(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
  return unused;
}

}  // namespace triax
