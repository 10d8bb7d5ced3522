#include "core/check.h"
#include "parallel/comm/gpu/nccl_comm.h"

// A build without NCCL.

namespace triax::parallel {

void prepare_nccl() {}

std::string nccl_version() {
  fail(Exit::config,
       "nccl: this build has none\n  Use --comm mpi, or build triax where NCCL and CUDA are.");
}

std::unique_ptr<Communicator> nccl_world(std::unique_ptr<Communicator>, Device, NcclOptions) {
  fail(Exit::config, "{}", nccl_version());
}

}  // namespace triax::parallel
