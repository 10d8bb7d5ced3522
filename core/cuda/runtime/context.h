#pragma once
#include <cuda_runtime.h>

#include <memory>

#include "triax/core/cuda/runtime/pool.h"

namespace triax::cuda {

struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};

/// A point in a stream's work.
class Event {
 public:
  /// Whether the event records the time at which the GPU reaches it, which costs it a little.
  enum class Time { unknown, kept };
  /// Makes an event of the current device.
  explicit Event(Time time = Time::unknown);
  /// Moves the event behind everything queued on `stream` so far.
  void record(cudaStream_t stream);
  /// Makes `stream` wait for the recorded point; the host does not wait.
  void hold(cudaStream_t stream) const;
  /// True if the recorded point was reached.
  bool done() const;
  /// Makes the host wait for it.
  void wait() const;
  /// Returns milliseconds from `earlier` to this. Both are reached, and their times recorded.
  float since(const Event& earlier) const;

 private:
  std::unique_ptr<CUevent_st, DestroyEvent> event_;
};

/// The state of one rank (a thread) on one GPU: its kernels' stream and its caches of blocks.
class Context : Immovable {
 public:
  explicit Context(int device);
  /// Waits for all that was queued, since it may use the pools' blocks.
  ~Context();
  cudaStream_t stream() const { return stream_.get(); }
  const std::shared_ptr<Pool>& pool() const { return pool_; }
  /// Returns pinned memory of the host, which the GPU accesses without help of the CPU.
  const std::shared_ptr<Pool>& host_pool() const { return host_pool_; }
  /// Returns, while a graph is captured, the address of the shift of its masks' rows; else null.
  const int64_t* shifted_rows() const { return shifted_rows_; }
  bool capturing() const { return shifted_rows_ != nullptr; }
  void set_shifted_rows(const int64_t* rows) { shifted_rows_ = rows; }
  /// Makes the host wait for all that was queued. Throws Error 70 if a kernel failed.
  void synchronize() const;

 private:
  std::shared_ptr<CUstream_st> stream_;
  std::shared_ptr<Pool> pool_, host_pool_;
  const int64_t* shifted_rows_ = nullptr;
};

/// Returns the calling thread's context on GPU `index`, made at first use; that device becomes the
/// current one. Throws Error 78 if there is no such GPU.
Context& context(int index);

}  // namespace triax::cuda
