#include "triax/core/cuda/runtime/context.h"

#include <cstdlib>
#include <thread>
#include <vector>

#include "triax/core/check.h"
#include "triax/core/cuda/runtime/devices.h"
#include "triax/core/cuda/runtime/status.h"

namespace triax::cuda {

namespace {

/// While it lives, this thread may allocate during a capture of its stream, outside of the graph.
class RelaxedCapture : Immovable {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Allocates by cudaMalloc or cudaMallocHost; null where no memory is left.
void* allocate_by(cudaError_t (*allocate)(void**, size_t), const char* call, size_t bytes) {
  void* data = nullptr;
  cudaError_t status = allocate(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next call would report it once more
    return nullptr;
  }
  require(status, call);
  return data;
}

/// Returns an event behind what the calling thread has queued on GPU `device`; null if the device
/// is lost, which its next call reports.
std::shared_ptr<void> event_behind(int device) noexcept {
  try {
    cudaStream_t stream = context(device).stream();  // makes the device current, for the event
    auto event = std::make_shared<Event>();
    event->record(stream);
    return event;
  } catch (const Error&) {
    return nullptr;
  }
}

class DeviceMemory final : public BlockSource {
 public:
  DeviceMemory(int device, std::shared_ptr<CUstream_st> stream)
      : device_(device), stream_(std::move(stream)) {}

  void* allocate(size_t bytes) override {
    require(cudaSetDevice(device_), "cudaSetDevice");
    RelaxedCapture relaxed;
    return allocate_by(cudaMalloc, "cudaMalloc", bytes);
  }
  void free(void* data) noexcept override { cudaFree(data); }  // waits for the device
  // The graph's work may use what is free now.
  bool may_free() const override { return !context(device_).capturing(); }
  void poison(void* data, size_t n) noexcept override {
    static const bool on = std::getenv("TRIAX_POISON") != nullptr;
    if (on && std::this_thread::get_id() == owner_) cudaMemsetAsync(data, 0xff, n, stream_.get());
  }
  std::shared_ptr<void> mark() noexcept override {
    return std::this_thread::get_id() == owner_ ? nullptr : event_behind(device_);
  }
  // A captured stream cannot wait for what is outside of its graph.
  bool ready(const std::shared_ptr<void>&) const override { return !context(device_).capturing(); }
  void wait_for(const std::shared_ptr<void>& mark) override {
    static_cast<Event*>(mark.get())->hold(stream_.get());
  }
  const char* where() const override { return "the GPU"; }

 private:
  int device_;
  std::shared_ptr<CUstream_st> stream_;
  std::thread::id owner_ = std::this_thread::get_id();
};

std::shared_ptr<CUstream_st> make_stream() {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return {stream, [](cudaStream_t s) { cudaStreamDestroy(s); }};
}

class PinnedMemory final : public BlockSource {
 public:
  explicit PinnedMemory(int device) : device_(device) {}

  void* allocate(size_t bytes) override {
    check(!context(device_).capturing(), "cuda: a step that is captured asks for pinned memory");
    return allocate_by(cudaMallocHost, "cudaMallocHost", bytes);
  }
  void free(void* data) noexcept override { cudaFreeHost(data); }
  std::shared_ptr<void> mark() noexcept override { return event_behind(device_); }
  void wait_for(const std::shared_ptr<void>&) override {}
  bool ready(const std::shared_ptr<void>& mark) const override {
    return static_cast<Event*>(mark.get())->done();
  }
  const char* where() const override { return "the host that a GPU may read"; }

 private:
  int device_;
};

thread_local std::vector<std::unique_ptr<Context>> contexts;

}  // namespace

Event::Event(Time time) {
  cudaEvent_t event = nullptr;
  unsigned flags = time == Time::kept ? cudaEventDefault : cudaEventDisableTiming;
  require(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  event_.reset(event);
}
void Event::record(cudaStream_t stream) {
  require(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
}
void Event::hold(cudaStream_t stream) const {
  require(cudaStreamWaitEvent(stream, event_.get(), 0), "cudaStreamWaitEvent");
}
bool Event::done() const {
  cudaError_t status = cudaEventQuery(event_.get());
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  require(status, "cudaEventQuery");
  return true;
}
void Event::wait() const { require(cudaEventSynchronize(event_.get()), "cudaEventSynchronize"); }
float Event::since(const Event& earlier) const {
  float ms = 0;
  require(cudaEventElapsedTime(&ms, earlier.event_.get(), event_.get()), "cudaEventElapsedTime");
  return ms;
}

Context::Context(int device)
    : stream_(make_stream()),
      pool_(std::make_shared<Pool>(std::make_unique<DeviceMemory>(device, stream_))),
      host_pool_(std::make_shared<Pool>(std::make_unique<PinnedMemory>(device))) {}

Context::~Context() { cudaStreamSynchronize(stream()); }

void Context::synchronize() const {
  require(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
}

Context& context(int index) {
  size_t at = size_t(index);
  if (at < contexts.size() && contexts[at]) [[likely]] {
    require(cudaSetDevice(index), "cudaSetDevice");
    return *contexts[at];
  }
  require_device(index);
  require(cudaSetDevice(index), "cudaSetDevice");
  if (contexts.size() <= at) contexts.resize(at + 1);
  contexts[at] = std::make_unique<Context>(index);
  return *contexts[at];
}

void trim_memory() {
  for (auto& context : contexts)
    if (context) {
      context->pool()->trim();
      context->host_pool()->trim();
    }
}

}  // namespace triax::cuda
