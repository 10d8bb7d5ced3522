#include <mutex>

#include "triax/core/check.h"
#include "triax/core/cuda/cuda.h"
#include "triax/core/cuda/libraries/cudnn.h"
#include "triax/core/cuda/runtime/context.h"
#include "triax/core/cuda/runtime/devices.h"
#include "triax/core/cuda/runtime/status.h"

// Cuda's members on a GPU; tests/cuda/emulation has those without one.

namespace triax::cuda {

namespace TRIAX_TARGET {

namespace {

class EventMark final : public Mark {
 public:
  explicit EventMark(cudaStream_t stream) { event_.record(stream); }
  bool reached() const override { return event_.done(); }
  void wait() const override { event_.wait(); }

 private:
  Event event_;
};

/// Cuda with convolutions by cuDNN where it has them, else by patches and products.
class CudnnCuda final : public Cuda {
 public:
  using Cuda::Cuda;
  void conv2d(const Conv2d& c, const Tensor& y) override {
    if (!cudnn_conv2d(c, y)) Cuda::conv2d(c, y);
  }
  void conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx) override {
    if (!cudnn_conv2d_backward_input(c, dy, dx)) Cuda::conv2d_backward_input(c, dy, dx);
  }
  void conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw,
                              Write write) override {
    if (!cudnn_conv2d_backward_weight(c, dy, dw, write))
      Cuda::conv2d_backward_weight(c, dy, dw, write);
  }
};

}  // namespace

Cuda::Cuda(int index) : index_(index) {
  require_device(index);
  cudaDeviceProp device;
  require(cudaGetDeviceProperties(&device, index), "cudaGetDeviceProperties");
  name_ = fmt::format("{}, sm_{}{}", device.name, device.major, device.minor);
}
Cuda::~Cuda() = default;
std::shared_ptr<Allocator> Cuda::allocator() { return context(index_).pool(); }
std::shared_ptr<Allocator> Cuda::host_allocator() { return context(index_).host_pool(); }
const char* Cuda::name() const { return name_.c_str(); }
Stream Cuda::stream() const { return Stream{context(index_).stream()}; }
std::unique_ptr<Mark> Cuda::mark() { return std::make_unique<EventMark>(context(index_).stream()); }

const int64_t* Cuda::shifted_rows() const { return context(index_).shifted_rows(); }

}  // namespace TRIAX_TARGET

Backend& backend_of(int index) {
  struct Gpu {
    std::once_flag made;
    std::unique_ptr<Backend> backend;
  };
  // Every op passes here: CUDA is asked once, and a lock is taken once for each GPU.
  static std::vector<Gpu> gpus{size_t(gpu_count())};
  if (index < 0 || size_t(index) >= gpus.size()) require_device(index);  // throws, with the reason
  Gpu& gpu = gpus.at(size_t(index));
  std::call_once(gpu.made, [&] { gpu.backend = std::make_unique<TRIAX_TARGET::CudnnCuda>(index); });
  return *gpu.backend;
}

}  // namespace triax::cuda
