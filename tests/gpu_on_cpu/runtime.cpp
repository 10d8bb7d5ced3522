#include "tests/gpu_on_cpu/runtime.h"

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tests/gpu_on_cpu/device.h"

using namespace triax::gpu_on_cpu;

namespace triax::gpu_on_cpu {

namespace {

thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;

/// Returns what a variable of the environment says, or `otherwise` if it is not there.
double said(const char* name, double otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atof(value) : otherwise;
}

Options from_environment() {
  Options o;
  o.devices = int(said("GPU_ON_CPU_DEVICES", o.devices));
  o.memory = size_t(said("GPU_ON_CPU_MEMORY", double(o.memory)));
  o.delay = int(said("GPU_ON_CPU_DELAY", o.delay / 1e3) * 1e3);
  o.processors = int(said("GPU_ON_CPU_PROCESSORS", o.processors));
  o.lazy = said("GPU_ON_CPU_LAZY", 0) != 0;
  o.malloc_waits = int(said("GPU_ON_CPU_MALLOC_WAITS", 0));
  o.races = said("GPU_ON_CPU_RACES", 0) != 0;
  o.nccl_room = size_t(said("GPU_ON_CPU_NCCL_ROOM", 0));
  o.nccl_memory = size_t(said("GPU_ON_CPU_NCCL_MEMORY", 0) * 1e6);
  return o;
}

Options& settings() {
  static Options o = from_environment();
  return o;
}

}  // namespace

std::atomic<int64_t> allocations = 0, pinned = 0, host_waits = 0, works = 0, questions = 0;

void configure(const Options& o) { settings() = o; }
const Options& options() { return settings(); }
int current_device() { return current; }
bool loads_lazily() {
  static const bool lazily = [] {
    const char* mode = std::getenv("CUDA_MODULE_LOADING");
    return options().lazy && !(mode && std::string_view(mode) == "EAGER");
  }();
  return lazily;
}
Calls calls() { return {allocations, pinned, host_waits, works, questions}; }

std::vector<std::unique_ptr<Memory>>& memories() {
  // Never freed: streams of threads that end late still use them.
  static auto& all = *[] {
    auto* made = new std::vector<std::unique_ptr<Memory>>;
    for (int d = 0; d < options().devices; ++d)
      made->push_back(std::make_unique<Memory>(options().memory));
    return made;
  }();
  return all;
}

cudaError_t remember(cudaError_t status) {
  if (status != cudaSuccess) last = status;
  return status;
}

}  // namespace triax::gpu_on_cpu

cudaError_t cudaGetDeviceCount(int* count) {
  ++questions;
  loads_lazily();
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (options().devices <= 0 || driver / 1000 < CUDART_VERSION / 1000)
    return remember(cudaErrorInsufficientDriver);  // 35, as without one
  *count = options().devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= options().devices) return remember(cudaErrorInvalidDevice);
  current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= options().devices) return remember(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "GPU on CPU");
  properties->uuid.bytes[0] = char(device + 1);
  properties->totalGlobalMem = options().memory;
  properties->major = 9;
  properties->multiProcessorCount = options().processors;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return *value = 9, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = 0, cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      return *value = options().processors, cudaSuccess;
    default:
      return remember(cudaErrorInvalidValue);
  }
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  const char* set = std::getenv("GPU_ON_CPU_DRIVER");
  return set ? (*version = std::atoi(set), cudaSuccess) : cudaRuntimeGetVersion(version);
}

cudaError_t cudaGetLastError() {
  cudaError_t status = last;
  last = cudaSuccess;
  return status;
}
cudaError_t cudaPeekAtLastError() { return last; }
const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return "an error";
  }
}
const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    default:
      return "cudaError";
  }
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (thread_captures()) return refuse_while_captured();
  ++allocations;
  if (options().malloc_waits) wait_for_device(current);
  *data = memories()[size_t(current)]->allocate(bytes);
  return *data ? cudaSuccess : remember(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* data) {
  if (thread_captures()) return refuse_while_captured();
  if (!data) return cudaSuccess;
  for (size_t device = 0; device < memories().size(); ++device) {
    Memory& memory = *memories()[device];
    if (!memory.holds(data)) continue;
    wait_for_device(int(device));  // as on a GPU
    size_t before = memory.unused();
    bool freed = memory.free(data);
    forget(data, memory.unused() - before);
    return freed ? cudaSuccess : remember(cudaErrorInvalidValue);
  }
  return remember(cudaErrorInvalidValue);
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  if (thread_captures()) return refuse_while_captured();
  ++pinned;
  if (options().malloc_waits > 1) wait_for_device(current);
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *data ? cudaSuccess : remember(cudaErrorMemoryAllocation);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return cudaMallocHost(data, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* unused, size_t* total) {
  *unused = memories()[size_t(current)]->unused();
  *total = options().memory;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  touch(stream, "copy", {{from, bytes, false}, {to, bytes, true}});
  enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  touch(stream, value == 0xff ? "fill of a freed block" : "fill", {{to, bytes, true}});
  enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
