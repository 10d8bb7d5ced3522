#include "parallel/comm/gpu/device_comm.h"

#include "core/check.h"

namespace triax::parallel {

DeviceComm::DeviceComm(std::unique_ptr<Communicator> host, Device device)
    : Communicator(host->group()), host_(std::move(host)), device_(device) {
  fault_ = host_->fault_;
}

std::unique_ptr<Communicator> DeviceComm::host_of(std::unique_ptr<Communicator> comm) {
  auto* on_device = dynamic_cast<DeviceComm*>(comm.get());
  if (!on_device) return comm;
  auto host = std::move(on_device->host_);
  comm = nullptr;
  return host;
}

Work DeviceComm::start(Transfer t) {
  bool here = false;
  for (const Tensor* x : {&t.from, &t.to}) {
    if (!x->defined()) continue;
    here = x->device() == device_;
    check(here || x->device() == cpu, "{}: {}; expected a tensor on {} or the cpu",
          name(t.call.kind), triax::describe(*x), device_);
  }
  if (here) return start_on_device(std::move(t));
  keep_order();
  return start_on_host(std::move(t));
}

std::unique_ptr<Communicator> DeviceComm::start_split(Group group, int number, int color) {
  return on(host_->start_split(std::move(group), number, color), color);
}

}  // namespace triax::parallel
