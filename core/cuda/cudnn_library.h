#pragma once
#include <map>

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

/// Makes the calling thread's context on `device`, which must be older than its plans: the streams
/// outlive the library's handles.
void begin(Device device);
/// The calling thread's plan for `shape` on `device`, made by make(shape) when it comes up for the
/// first time; null, also later, if that is. Forgotten when there are too many.
template <class Shape>
const Plan* plan_of(const Shape& shape, Device device,
                    std::unique_ptr<Plan> (*make)(const Shape& shape)) {
  constexpr size_t kept = 256;
  begin(device);
  thread_local std::map<int, std::map<Shape, std::unique_ptr<Plan>>> all;
  auto& plans = all[device.index];
  auto found = plans.find(shape);
  if (found != plans.end()) return found->second.get();
  if (plans.size() >= kept) plans.clear();
  return plans.emplace(shape, make(shape)).first->second.get();
}
/// Queues the plan on the calling thread's stream of `device`, with a workspace from its pool.
void execute(const Plan& plan, Device device, std::span<const Place> places);

/// Once in a process for each `what`: the shape is left to triax's own kernels, which are slower.
void say_refused(const char* what, const std::string& shape, const std::string& refusal);

}  // namespace triax::cuda::dnn
