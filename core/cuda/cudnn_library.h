#pragma once
#include <map>
#include <mutex>

#include "core/cuda/cudnn_graph.h"
#include "core/tensor.h"

// What attention and convolutions share between tensors and graphs.

namespace triax::cuda::dnn {

/// Has the environment TRIAX_CUDNN=0?
bool switched_off();
/// Are kernels asked for whose bits repeat (core/gpus.h)?
bool deterministic();

/// Whether a graph can read or write x: at a multiple of 16 bytes.
bool aligned(const Tensor& x);

/// Memory of these files' own, which like that of kernels (tensors.h) counts as nobody's.
Tensor scratch(const Shape& shape, DType dtype, Device device);

/// Makes the calling thread's context and the library's handle on `device`, in this order: streams
/// outlive handles.
void begin(Device device);
/// What the library is told about a GPU of this machine when it chooses and compiles.
Descriptor describe_gpu(int index);

/// Plans of all threads, one for each shape and GPU. They are never given up: captured graphs run
/// them again.
template <class Shape> class Plans {
 public:
  /// That for `shape`, by make() when it comes up for the first time; null, also later, if that is.
  /// Threads that ask for the same one wait for it, others do not.
  template <class Make> const Plan* of(const Shape& shape, int device, Make make) {
    Entry& e = entry(shape, device);
    std::lock_guard guard(e.making);
    if (!e.made) e.plan = make(), e.made = true;
    return e.plan.get();
  }

 private:
  struct Entry {
    std::mutex making;
    bool made = false;
    std::unique_ptr<Plan> plan;
  };
  Entry& entry(const Shape& shape, int device) {
    std::lock_guard guard(mutex_);
    return all_[device][shape];
  }
  std::mutex mutex_;
  std::map<int, std::map<Shape, Entry>> all_;
};

/// This process's plan for `shape` on `device`, by make(shape, gpu), for the calling thread to
/// execute.
template <class Shape, class Make>
const Plan* plan_of(const Shape& shape, Device device, Make make) {
  begin(device);
  static auto& plans = *new Plans<Shape>;  // older than the last thread, and than the library
  return plans.of(shape, device.index, [&] { return make(shape, describe_gpu(device.index)); });
}
/// Queues the plan on the calling thread's stream of `device`, with a workspace from its pool.
void execute(const Plan& plan, Device device, std::span<const Place> places);

/// Once in a process for each `what`: the shape is left to triax's own kernels, which are slower.
void say_refused(const char* what, const std::string& shape, const std::string& refusal);

}  // namespace triax::cuda::dnn
