#include "tests/gpu_on_cpu/libraries/nccl_request.h"
#include "triax/core/dtype.h"

// NCCL's collectives and messages, in triax's words, and its own words.

using triax::DType;
using triax::gpu_on_cpu::nccl::ask;
using triax::parallel::Call;
using triax::parallel::ReduceOp;

namespace {

DType dtype_of(ncclDataType_t type) {
  using enum DType;  // no triax tensor is of the others
  constexpr DType types[] = {u8, u8, i32, i32, i64, i64, f16, f32, f64, bf16};
  return types[type];
}

Call call_of(Call::Kind kind, size_t count, ncclDataType_t type, int peer = -1,
             ncclRedOp_t op = ncclSum) {
  ReduceOp ops[] = {ReduceOp::sum, ReduceOp::sum, ReduceOp::max, ReduceOp::min};
  return {
      .kind = kind, .op = ops[op], .dtype = dtype_of(type), .peer = peer, .numel = int64_t(count)};
}

}  // namespace

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, {call_of(Call::all_reduce, count, type, -1, op), from, to}, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, {call_of(Call::all_gather, count, type), from, to}, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, {call_of(Call::reduce_scatter, count, type, -1, op), from, to}, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, {call_of(Call::broadcast, count, type, root), from, to}, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, {call_of(Call::reduce, count, type, root, op), from, to}, stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return ask(comm, {call_of(Call::send, count, type, peer), from, nullptr}, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return ask(comm, {call_of(Call::recv, count, type, peer), nullptr, to}, stream);
}

const char* ncclGetErrorString(ncclResult_t result) {
  if (result == ncclUnhandledCudaError) return "unhandled cuda error";
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "invalid usage";
}
