#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>
#include <typeinfo>

#include "tests/gpu_on_cpu/device.h"
#include "triax/core/cuda/runtime/emulation.h"

using namespace triax::gpu_on_cpu;

namespace triax::gpu_on_cpu {

void Point::reach() {
  std::lock_guard guard(mutex_);
  at_ =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
          .count();
  reached_ = true;
  changed_.notify_all();
}
bool Point::reached() const {
  std::lock_guard guard(mutex_);
  return reached_;
}
void Point::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached_; });
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  ++works;
  if (stream->capture()) stream->capture()->works.push_back(std::move(work));
  else stream->push(std::move(work));
}

bool capturing(cudaStream_t stream) { return stream->capture() != nullptr; }

std::unique_lock<std::mutex> hold_driver() {
  static std::mutex driver;
  return std::unique_lock(driver);
}

}  // namespace triax::gpu_on_cpu

/// Kernels of launch.h, whose launches have a type for each of them.
void triax::cuda::emulation::enqueue(Stream stream, std::function<void()> work) {
  auto* to = static_cast<cudaStream_t>(stream.handle);
  load(to, work.target_type().hash_code());
  if (to->device == current_device()) return gpu_on_cpu::enqueue(to, std::move(work));
  std::fprintf(stderr, "gpu_on_cpu: a kernel for GPU %d while %d is current\n", to->device,
               current_device());
  to->failed = true;
}

namespace {

std::mutex streams_mutex;
std::set<CUstream_st*> streams;

}  // namespace

void triax::gpu_on_cpu::wait_for_device(int device) {
  std::vector<std::shared_ptr<Point>> ends;
  Clock passed;
  {
    std::lock_guard guard(streams_mutex);
    for (auto* stream : streams)
      if (stream->device == device) {
        ends.push_back(stream->mark());
        join(passed, passed_by(stream));
      }
  }
  for (auto& end : ends) end->wait();
  host_waits_for(passed);
}

void triax::gpu_on_cpu::load(cudaStream_t stream, size_t kernel) {
  static std::mutex mutex;
  static auto& loaded = *new std::set<std::pair<int, size_t>>;  // threads end late
  if (!loads_lazily() || capturing(stream)) return;
  {
    std::lock_guard guard(mutex);
    if (!loaded.insert({stream->device, kernel}).second) return;
  }
  wait_for_device(stream->device);
}

CUstream_st::CUstream_st(int on) : device(on), thread_([this] { work(); }) {
  std::lock_guard guard(streams_mutex);
  streams.insert(this);
}

CUstream_st::~CUstream_st() {
  {
    std::lock_guard guard(streams_mutex);
    streams.erase(this);
  }
  {
    std::lock_guard guard(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();  // what was queued is done first, as on a GPU
}

std::shared_ptr<CUgraph_st>& CUstream_st::capture() {
  if (capture_ && capture_->over) capture_ = nullptr;
  return capture_;
}

void CUstream_st::push(std::function<void()> run, Kind kind) {
  std::lock_guard guard(mutex_);
  Work work{.run = std::move(run), .kind = kind};
  if (kind != Kind::tells) queue_up(work);
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

// With CUDA_DEVICE_MAX_CONNECTIONS=1 the work of all streams of a device stands in one queue, in
// the order of calls: each starts when the one before has started, and if that waits for an event,
// when it has waited. Under the stream's lock, so that the queue has a stream's work in its order.
void CUstream_st::queue_up(Work& work) const {
  static std::mutex mutex;
  static auto& last = *new std::map<int, std::shared_ptr<Point>>;  // threads end late
  static const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (!connections || std::atoi(connections) != 1) return;
  std::lock_guard guard(mutex);
  work.passed = std::make_shared<Point>();
  work.before = std::exchange(last[device], work.passed);
}

std::shared_ptr<Point> CUstream_st::mark(Kind kind) {
  auto point = std::make_shared<Point>();
  push([point] { point->reach(); }, kind);
  return point;
}

cudaError_t CUstream_st::synchronize() {
  Clock passed = passed_by(this);
  mark()->wait();
  host_waits_for(passed);
  return failed ? cudaErrorLaunchFailure : cudaSuccess;
}

// Nothing to run: the stream is about to end.
CUstream_st::Work CUstream_st::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
  if (queue_.empty()) return {};
  Work work = std::move(queue_.front());
  queue_.pop_front();
  work.last = queue_.empty();
  return work;
}

void CUstream_st::work() {
  std::minstd_rand dice(unsigned(number) + 1);
  std::optional<Running> open;  // as long as there is work: opening takes long
  for (Work work = next(); work.run; work = next()) {
    if (int most = options().delay)
      std::this_thread::sleep_for(std::chrono::microseconds(dice() % unsigned(most)));
    if (work.before) work.before->wait();
    if (work.passed && work.kind != Kind::waits) work.passed->reach();
    if (work.kind == Kind::touches && !open) open.emplace();
    if (work.kind != Kind::touches && work.last) open.reset();  // before the host goes on
    try {
      work.run();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "gpu_on_cpu: %s\n", e.what());
      failed = true;
    }
    if (work.passed && work.kind == Kind::waits) work.passed->reach();
    if (work.last) open.reset();
  }
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  int device = 0;
  cudaGetDevice(&device);
  *stream = new CUstream_st(device);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (thread_captures()) return refuse_while_captured();
  ++host_waits;
  wait_for_device(current_device());
  close_memory();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capture()) return refuse_while_captured();
  ++host_waits;
  cudaError_t status = stream->synchronize();
  close_memory();
  return remember(status);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->capture()) return refuse_while_captured();
  return stream->failed ? remember(cudaErrorLaunchFailure) : cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st{current_device()};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->device != stream->device) return remember(cudaErrorInvalidResourceHandle);
  std::lock_guard guard(event->mutex);
  event->captured_in = stream->capture();
  event->clock = passed_by(stream);
  event->point = stream->capture() ? nullptr : stream->mark(CUstream_st::Kind::marks);
  return cudaSuccess;
}

// A stream that waits for an event of a capture joins it, as in CUDA.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  std::lock_guard guard(event->mutex);
  if (event->captured_in) {
    if (!stream->capture()) stream->capture() = event->captured_in, stream->began = false;
    return stream->capture() == event->captured_in ? cudaSuccess
                                                   : remember(cudaErrorStreamCaptureMerge);
  }
  if (!event->point) return cudaSuccess;
  if (stream->capture()) return invalidate(cudaErrorStreamCaptureIsolation);
  stream_waits(stream, event->clock);
  stream->push([point = event->point] { point->wait(); }, CUstream_st::Kind::waits);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (thread_captures()) return refuse_while_captured();
  { auto free = hold_driver(); }
  std::lock_guard guard(event->mutex);
  if (event->captured_in) return invalidate(cudaErrorCapturedEvent);
  if (event->point && !event->point->reached()) return remember(cudaErrorNotReady);
  host_waits_for(event->clock);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (thread_captures()) return refuse_while_captured();
  std::shared_ptr<Point> point;
  Clock passed;
  {
    std::lock_guard guard(event->mutex);
    if (event->captured_in) return invalidate(cudaErrorCapturedEvent);
    point = event->point;
    passed = event->clock;
  }
  ++host_waits;
  if (point) point->wait();
  host_waits_for(passed);
  close_memory();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (!from->point || !to->point) return remember(cudaErrorInvalidResourceHandle);
  if (!from->point->reached() || !to->point->reached()) return remember(cudaErrorNotReady);
  *ms = float(to->point->at() - from->point->at());
  return cudaSuccess;
}
