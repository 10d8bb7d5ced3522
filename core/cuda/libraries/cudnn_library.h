#pragma once
#include <map>
#include <mutex>

#include "triax/core/cuda/libraries/cudnn_graph.h"
#include "triax/core/tensor.h"

// The part between tensors and graphs that attention and convolutions share.

namespace triax::cuda::dnn {

/// True if the environment has TRIAX_CUDNN=0.
bool switched_off();
/// True if kernels are asked for whose bits repeat (core/gpus.h).
bool deterministic();

/// True if a graph can read or write x: it lies at a multiple of 16 bytes.
bool aligned(const Tensor& x);

/// Returns scratch memory, which like that of kernels (tensors.h) is not counted.
Tensor scratch(const Shape& shape, DType dtype, Device device);

/// Makes the calling thread's context and the library's handle on `device`, in this order: streams
/// outlive handles.
void begin(Device device);
/// Describes a GPU of this machine to the library, which chooses and compiles for it.
Descriptor describe_gpu(int index);

/// Plans of all threads, one for each shape and GPU. They are never given up: captured graphs run
/// them again.
template <class Shape> class Plans {
 public:
  /// Returns the plan for `shape`, from make() when it first comes up; null, then and later, if
  /// make() returned null. Threads that ask for the same one wait for it, others do not.
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

/// Returns this process's plan for `shape` on `device`, from make(shape, gpu), for the calling
/// thread to execute.
template <class Shape, class Make>
const Plan* plan_of(const Shape& shape, Device device, Make make) {
  begin(device);
  static auto& plans = *new Plans<Shape>;  // older than the last thread, and than the library
  return plans.of(shape, device.index, [&] { return make(shape, describe_gpu(device.index)); });
}
/// Queues the plan on the calling thread's stream of `device`, with a workspace from its pool.
void execute(const Plan& plan, Device device, std::span<const Place> places);

/// Prints, once a process for each `what`, that triax's own, slower kernels take the shape.
void say_refused(const char* what, const std::string& shape, const std::string& refusal);

}  // namespace triax::cuda::dnn
