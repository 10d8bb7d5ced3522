#include "core/cuda/tuning.h"

#include <atomic>
#include <limits>
#include <memory>

#include "core/cuda/context.h"
#include "core/cuda/devices.h"
#include "core/cuda/status.h"

namespace triax::cuda {

namespace {

std::atomic<Tuning>& tuning_for(DType dtype) {
  using enum Tuning;
  static std::atomic<Tuning> of[] = {heuristic, heuristic, heuristic, heuristic};
  return of[int(dtype)];
}

std::atomic<GpuBits> wanted_bits = GpuBits::repeat;

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream), begin_(make()), end_(make()) {}
  void start() { require(cudaEventRecord(begin_.get(), stream_), "cudaEventRecord"); }
  float stop() {
    require(cudaEventRecord(end_.get(), stream_), "cudaEventRecord");
    require(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
    float ms = 0;
    require(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return ms;
  }

 private:
  using Mark = std::unique_ptr<CUevent_st, DestroyEvent>;
  static Mark make() {
    cudaEvent_t event = nullptr;
    require(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
    return Mark(event);
  }
  cudaStream_t stream_;
  Mark begin_, end_;
};

}  // namespace

void set_tuning(DType dtype, Tuning tuning) { tuning_for(dtype) = tuning; }
Tuning tuning_of(DType dtype) { return tuning_for(dtype); }

void set_bits(GpuBits bits) {
  wanted_bits = bits;
  for (DType half : {f16, bf16})
    set_tuning(half, bits == GpuBits::repeat ? Tuning::heuristic : Tuning::timed);
}
GpuBits bits() { return wanted_bits; }

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  require(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void drain() { require(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

float time_of(cudaStream_t stream, const std::function<bool()>& run) {
  constexpr int more = 8;
  constexpr float short_ms = 1;
  // The first run loads code and fills caches.
  if (!run()) return std::numeric_limits<float>::infinity();
  Stopwatch watch(stream);
  watch.start();
  run();
  float ms = watch.stop();
  if (ms > short_ms) return ms;
  watch.start();  // again, or the clock's resolution would decide
  for (int i = 0; i < more; ++i) run();
  return watch.stop() / more;
}

}  // namespace triax::cuda
