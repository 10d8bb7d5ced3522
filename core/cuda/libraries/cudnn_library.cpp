#include "triax/core/cuda/libraries/cudnn_library.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

#include "triax/core/cuda/runtime/context.h"
#include "triax/core/cuda/runtime/devices.h"
#include "triax/core/memory.h"

namespace triax::cuda::dnn {
namespace {

struct DestroyHandle {
  void operator()(cudnnHandle_t handle) const noexcept { cudnnDestroy(handle); }
};

/// One thread's handle of the library on one GPU.
class Handle {
 public:
  Handle() {
    cudnnHandle_t handle = nullptr;
    require(cudnnCreate(&handle), "cudnnCreate");
    handle_.reset(handle);
  }
  /// Returns the handle, which queues its work on `stream`.
  cudnnHandle_t on(cudaStream_t stream) {
    if (stream != stream_) require(cudnnSetStream(handle_.get(), stream), "cudnnSetStream");
    stream_ = stream;
    return handle_.get();
  }

 private:
  std::unique_ptr<cudnnContext, DestroyHandle> handle_;
  cudaStream_t stream_ = nullptr;  // the one that a new handle has
};

/// Returns this thread's handle. Call context() before: its streams outlive the handles.
Handle& handle(int device) {
  thread_local std::map<int, Handle> all;
  return all[device];
}

}  // namespace

bool switched_off() {
  static const bool off = [] {
    const char* text = std::getenv("TRIAX_CUDNN");
    return text && std::string_view(text) == "0";
  }();
  return off;
}

bool deterministic() { return bits() == GpuBits::repeat; }

Descriptor describe_gpu(int index) {
  Descriptor gpu(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  gpu.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, int32_t(index)).finalize();
  return gpu;
}

bool aligned(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.data()) % 16 == 0; }

Tensor scratch(const Shape& shape, DType dtype, Device device) {
  memory::OwnCounter uncounted;
  return empty(shape, dtype, device);
}

void begin(Device device) {
  context(device.index);
  handle(device.index);
}

void execute(const Plan& plan, Device device, std::span<const Place> places) {
  Tensor workspace = scratch({int64_t(plan.workspace())}, u8, device);
  cudaStream_t stream = context(device.index).stream();
  plan.execute(handle(device.index).on(stream), places, workspace.data());
}

void say_refused(const char* what, const std::string& shape, const std::string& refusal) {
  static std::mutex saying;
  static std::set<std::string> said;
  std::lock_guard guard(saying);
  if (!said.insert(what).second) return;
  fmt::print(stderr, "triax: {} of {} is left to triax's own kernels: cuDNN refuses it: {}\n", what,
             shape, refusal);
}

}  // namespace triax::cuda::dnn
