#pragma once
#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// Tensors of a GPU by way of the host: copied to it behind what is queued on the GPU, moved there
/// by `host`, and copied back when they are waited for. Several ranks may share a GPU. The CPU does
/// not wait for the GPU until it waits for a transfer (or makes one of tensors of the CPU).
std::unique_ptr<Communicator> staged_on_host(std::unique_ptr<Communicator> host, Device device);

}  // namespace triax::parallel
