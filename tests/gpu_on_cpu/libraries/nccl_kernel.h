#pragma once
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

namespace triax::gpu_on_cpu::nccl {

/// What NCCL puts into a stream at once. It starts when the one `before` it has started.
struct Kernel {
  std::shared_ptr<Kernel> before = {};
  bool started = false;
  bool may_start() const { return !before || before->started; }
  void start() { before = nullptr, started = true; }
};

/// The next of a device. With NCCL_LAUNCH_ORDER_IMPLICIT=1 it comes behind the one that was made
/// before it, of whatever communicator. Callers hold a lock.
inline std::shared_ptr<Kernel> next_kernel(int device) {
  static auto& last = *new std::map<int, std::shared_ptr<Kernel>>;  // threads end late
  const char* implicit = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  auto kernel = std::make_shared<Kernel>();
  if (implicit && std::atoi(implicit) != 0) kernel->before = std::exchange(last[device], kernel);
  return kernel;
}

}  // namespace triax::gpu_on_cpu::nccl
