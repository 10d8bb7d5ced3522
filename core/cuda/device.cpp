#include <mutex>

#include "core/check.h"
#include "core/cuda/context.h"
#include "core/cuda/cuda.h"
#include "core/cuda/devices.h"
#include "core/cuda/status.h"

// What a Cuda is on a GPU; emulated.cpp has what it is without one.

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
  static std::mutex mutex;
  static std::vector<std::unique_ptr<TRIAX_TARGET::Cuda>> backends;
  require_device(index);
  std::lock_guard guard(mutex);
  if (backends.size() <= size_t(index)) backends.resize(size_t(index) + 1);
  auto& backend = backends[size_t(index)];
  if (!backend) backend = std::make_unique<TRIAX_TARGET::Cuda>(index);
  return *backend;
}

}  // namespace triax::cuda
