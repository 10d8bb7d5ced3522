#pragma once
#include <cuda_runtime.h>

#include <memory>

#include "core/cuda/pool.h"

namespace triax::cuda {

struct DestroyEvent {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};

/// A point in a stream's work.
class Event {
 public:
  /// Whether the time is kept at which the GPU came there, which costs it a little.
  enum class Time { unknown, kept };
  /// On the current device.
  explicit Event(Time time = Time::unknown);
  /// Stands behind everything queued on `stream` so far.
  void record(cudaStream_t stream);
  /// `stream` goes on only after the recorded point; the host does not wait.
  void hold(cudaStream_t stream) const;
  /// Has the recorded point been reached?
  bool done() const;
  /// The host waits for it.
  void wait() const;
  /// Milliseconds from `earlier` to this. Both are reached, and their times kept.
  float since(const Event& earlier) const;

 private:
  std::unique_ptr<CUevent_st, DestroyEvent> event_;
};

/// What one rank (a thread) has on one GPU: the stream its kernels run on and its caches of blocks.
class Context {
 public:
  explicit Context(int device);
  /// Waits for all that was queued: it may use what the pools hold.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  cudaStream_t stream() const { return stream_.get(); }
  const std::shared_ptr<Pool>& pool() const { return pool_; }
  /// Pinned memory of the host, which the GPU reads and writes without help of the CPU.
  const std::shared_ptr<Pool>& host_pool() const { return host_pool_; }
  /// While a graph is captured: where its masks find their shift. Else null.
  const int64_t* shifted_rows() const { return shifted_rows_; }
  bool capturing() const { return shifted_rows_ != nullptr; }
  void set_shifted_rows(const int64_t* rows) { shifted_rows_ = rows; }
  /// The host waits for all that was queued. Throws Error 70 if a kernel failed.
  void synchronize() const;

 private:
  std::shared_ptr<CUstream_st> stream_;
  std::shared_ptr<Pool> pool_, host_pool_;
  const int64_t* shifted_rows_ = nullptr;
};

/// The calling thread's context on GPU `index`, made at first use; that device becomes the current
/// one. Throws Error 78 if there is no such GPU.
Context& context(int index);

}  // namespace triax::cuda
