#pragma once
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "tests/gpu_on_cpu/device.h"

namespace triax::gpu_on_cpu::nccl {

/// A kernel of NCCL: it holds processors of its device from its start to its end. It starts when so
/// many are free and the one `before` it has started, or, with GPU_ON_CPU_ORDER_ENDS in the
/// environment, has ended. Callers hold a lock.
struct Kernel {
  int device = 0, processors = 1;
  std::shared_ptr<Kernel> before = {};
  bool started = false, ended = false;

  /// Returns the number of a device's processors that no kernel of NCCL holds.
  static int& free_processors(int device) {
    static auto& free = *new std::map<int, int>;  // threads end late
    return free.try_emplace(device, options().processors).first->second;
  }
  bool may_start() const {
    static const char* ends = std::getenv("GPU_ON_CPU_ORDER_ENDS");
    bool behind = before && !(ends ? before->ended : before->started);
    return !behind && free_processors(device) >= processors;
  }
  void start() {
    before = nullptr, started = true, ended = false;
    free_processors(device) -= processors;
  }
  void end() {
    ended = true;
    free_processors(device) += processors;
  }
};

/// The next of a device. With NCCL_LAUNCH_ORDER_IMPLICIT=1
/// it comes behind the one that was made before it, of whatever communicator; by the events that
/// NCCL takes, which CUDA gives as a best effort, behind its start, and with GPU_ON_CPU_ORDER_ENDS
/// behind its end.
inline std::shared_ptr<Kernel> next_kernel(int device) {
  static auto& last = *new std::map<int, std::shared_ptr<Kernel>>;
  const char* implicit = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  auto kernel = std::make_shared<Kernel>();
  if (implicit && std::atoi(implicit) != 0) kernel->before = std::exchange(last[device], kernel);
  return kernel;
}

}  // namespace triax::gpu_on_cpu::nccl
