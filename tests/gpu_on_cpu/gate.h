#pragma once
#include <future>
#include <utility>

#include "tests/gpu_on_cpu/runtime.h"
#include "triax/core/cuda/runtime/context.h"

namespace triax::gpu_on_cpu {

/// Holds up what this thread queues on a GPU from here on, until it is opened.
class Gate {
 public:
  explicit Gate(Device on) {
    gpu_on_cpu::enqueue(cuda::context(on.index).stream(),
                        [open = opened_.get_future().share()] { open.wait(); });
  }
  ~Gate() { open(); }
  void open() {
    if (!std::exchange(is_open_, true)) opened_.set_value();
  }

 private:
  std::promise<void> opened_;
  bool is_open_ = false;
};

}  // namespace triax::gpu_on_cpu
