#include "triax/core/check.h"
#include "triax/parallel/comm/gpu/nccl_comm.h"

// A build without NCCL.

namespace triax::parallel {

namespace {

[[noreturn]] void refuse() {
  fail(Exit::config,
       "nccl: this build has none\n  Use --comm mpi, or build triax where NCCL and CUDA are.");
}

}  // namespace

void prepare_nccl() {}

std::string nccl_version() { refuse(); }

std::unique_ptr<Communicator> nccl_world(std::unique_ptr<Communicator>, Device, NcclOptions) {
  refuse();
}

}  // namespace triax::parallel
