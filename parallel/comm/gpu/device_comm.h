#pragma once
#include "triax/parallel/comm/wrapper_comm.h"

namespace triax::parallel {

/// The base of communicators for tensors of a GPU: each stands on one of the same ranks that moves
/// CPU tensors, to which it leaves these, barriers and splits.
class DeviceComm : public WrapperComm {
 public:
  Device device() const final { return device_; }
  std::shared_ptr<Allocator> allocator() final { return Communicator::allocator(); }

 protected:
  /// `host` must have no operation in flight. An error of one ends both.
  DeviceComm(std::unique_ptr<Communicator> host, Device device);
  Communicator& host() { return inner(); }
  Work start_on_host(Transfer t) { return start_inner(std::move(t)); }

 private:
  Work start(Transfer t) final;
  std::unique_ptr<Communicator> start_split(Group group, int number, int color) final;

  /// Starts a transfer whose tensors are on `device()`.
  virtual Work start_on_device(Transfer t) = 0;
  /// Called before a transfer among CPUs, which comes next in the order of calls.
  virtual void keep_order() {}
  /// Returns a communicator of this kind on `host`; `color` tells it apart from the others.
  virtual std::unique_ptr<Communicator> on(std::unique_ptr<Communicator> host, int color) = 0;

  Device device_;
};

/// Stages GPU tensors through the host: they are copied to it behind the work queued on the GPU,
/// moved there by `host`, and copied back when they are waited for. Several ranks may share a GPU.
/// The CPU waits for the GPU only when it waits for a transfer (or makes one of CPU tensors).
std::unique_ptr<Communicator> staged_on_host(std::unique_ptr<Communicator> host, Device device);

}  // namespace triax::parallel
