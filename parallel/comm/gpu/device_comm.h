#pragma once
#include "parallel/comm/wrapper_comm.h"

namespace triax::parallel {

/// What communicators for the tensors of a GPU have in common: each stands on one of the same ranks
/// that moves tensors of the CPU, to which it leaves these, barriers and splits.
class DeviceComm : public WrapperComm {
 public:
  Device device() const final { return device_; }
  std::shared_ptr<Allocator> allocator() final { return Communicator::allocator(); }

 protected:
  /// `host` has no operation in flight. An error of one ends both.
  DeviceComm(std::unique_ptr<Communicator> host, Device device);
  Communicator& host() { return inner(); }
  Work start_on_host(Transfer t) { return start_inner(std::move(t)); }

 private:
  Work start(Transfer t) final;
  std::unique_ptr<Communicator> start_split(Group group, int number, int color) final;

  /// Its tensors are on `device()`.
  virtual Work start_on_device(Transfer t) = 0;
  /// A transfer among CPUs comes next in the order of calls.
  virtual void keep_order() {}
  /// The same as this, on ranks that `host` has; `color` tells it apart from the others.
  virtual std::unique_ptr<Communicator> on(std::unique_ptr<Communicator> host, int color) = 0;

  Device device_;
};

/// Tensors of a GPU by way of the host: copied to it behind what is queued on the GPU, moved there
/// by `host`, and copied back when they are waited for. Several ranks may share a GPU. The CPU does
/// not wait for the GPU until it waits for a transfer (or makes one of tensors of the CPU).
std::unique_ptr<Communicator> staged_on_host(std::unique_ptr<Communicator> host, Device device);

}  // namespace triax::parallel
