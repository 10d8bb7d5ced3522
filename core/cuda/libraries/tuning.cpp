#include "triax/core/cuda/libraries/tuning.h"

#include <atomic>
#include <limits>

#include "triax/core/cuda/runtime/context.h"
#include "triax/core/cuda/runtime/devices.h"
#include "triax/core/cuda/runtime/status.h"

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
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {}
  void start() { begin_.record(stream_); }
  float stop() {
    end_.record(stream_);
    end_.wait();
    return end_.since(begin_);
  }

 private:
  cudaStream_t stream_;
  Event begin_{Event::Time::kept}, end_{Event::Time::kept};
};

}  // namespace

void set_tuning(DType dtype, Tuning tuning) { tuning_for(dtype) = tuning; }
Tuning tuning_of(DType dtype) { return tuning_for(dtype); }

GpuBits bits() { return wanted_bits; }

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  require(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void drain(cudaStream_t stream) { require(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

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

namespace triax {

void set_gpu_bits(GpuBits bits) {
  using enum cuda::Tuning;
  cuda::wanted_bits = bits;
  for (DType half : {f16, bf16})
    cuda::set_tuning(half, bits == GpuBits::repeat ? heuristic : timed);
}

}  // namespace triax
