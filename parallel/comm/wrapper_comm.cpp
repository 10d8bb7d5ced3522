#include "parallel/comm/wrapper_comm.h"

namespace triax::parallel {

WrapperComm::WrapperComm(std::unique_ptr<Communicator> inner)
    : Communicator(inner->group()), inner_(std::move(inner)) {
  fault_ = inner_->fault_;
}

std::unique_ptr<Communicator> WrapperComm::innermost(std::unique_ptr<Communicator> comm) {
  while (auto* wrapper = dynamic_cast<WrapperComm*>(comm.get())) {
    auto inner = std::move(wrapper->inner_);
    comm = std::move(inner);
  }
  return comm;
}

}  // namespace triax::parallel
