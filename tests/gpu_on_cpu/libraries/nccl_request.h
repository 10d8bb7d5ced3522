#pragma once
#include <nccl.h>

#include "triax/parallel/comm/call.h"

namespace triax::gpu_on_cpu::nccl {

/// What a rank asks for.
struct Request {
  parallel::Call call;
  const void* from;
  void* to;
};

/// Begins it, or adds it to the calling thread's group.
ncclResult_t ask(ncclComm_t comm, const Request& request, cudaStream_t stream);

}  // namespace triax::gpu_on_cpu::nccl
