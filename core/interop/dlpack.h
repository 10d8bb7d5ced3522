#pragma once
#include <dlpack/dlpack.h>

#include <memory>
#include <vector>

#include "triax/core/backend.h"
#include "triax/core/check.h"
#include "triax/core/interop/interop.h"

// Tensors of PyTorch, JAX, CuPy and others without a copy, by DLPack (dmlc.github.io/dlpack), whose
// header is Debian's package libdlpack-dev. Python hands them over in capsules named "dltensor".
namespace triax {

namespace dlpack {

/// Holds a tensor that was handed out, and the arrays that its DLManagedTensor points to.
struct Owner {
  Tensor tensor;
  std::vector<int64_t> shape, strides;
  DLManagedTensor managed{};
};

/// Holds DLPack's names of the dtypes, in their order.
inline constexpr DLDataType types[dtype_count] = {
    {kDLFloat, 32, 1}, {kDLFloat, 64, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1},
    {kDLInt, 32, 1},   {kDLInt, 64, 1},   {kDLUInt, 8, 1}};

inline std::optional<DType> dtype_of(const DLDataType& type) {
  for (int t = 0; t < dtype_count; ++t)
    if (type.code == types[t].code && type.bits == types[t].bits && type.lanes == 1)
      return DType(t);
  return {};
}

}  // namespace dlpack

/// Returns what DLPack calls a managed tensor: it shares the memory of `x` and keeps it until its
/// `deleter` is called, once. Throws for a tensor with a history and on the meta device.
inline DLManagedTensor* to_dlpack(const Tensor& x) {
  auto owner = std::make_unique<dlpack::Owner>();
  owner->tensor = x;
  owner->shape.assign(x.shape().begin(), x.shape().end());
  owner->strides.assign(x.strides().begin(), x.strides().end());
  bool gpu = x.device().kind == Device::Kind::cuda;
  check(!x.meta() && (gpu || x.device() == cpu),
        "to_dlpack: {} has a gradient history or no bytes; expected detach() of it", x);
  if (gpu) backend(x.device()).mark()->wait();  // others have queues of their own
  DLTensor& t = owner->managed.dl_tensor;
  t.data = x.data();
  t.device = {gpu ? kDLCUDA : kDLCPU, x.device().index};
  t.ndim = x.rank();
  t.dtype = dlpack::types[int(x.dtype())];
  t.shape = owner->shape.data();
  t.strides = owner->strides.data();
  owner->managed.manager_ctx = owner.get();
  owner->managed.deleter = [](DLManagedTensor* m) {
    delete static_cast<dlpack::Owner*>(m->manager_ctx);
  };
  return &owner.release()->managed;
}

/// Returns a tensor over the memory of a managed tensor, which it takes over: its `deleter` is
/// called when the last handle has gone. On a GPU work that writes the memory has to be done.
/// Throws Error 65, and leaves it to the caller, for other devices than CPUs and CUDA's, dtypes
/// that triax has not, and strides that are not row-major.
inline Tensor from_dlpack(DLManagedTensor* from) {
  const DLTensor& t = from->dl_tensor;
  std::optional<DType> dtype = dlpack::dtype_of(t.dtype);
  bool here = t.device.device_type == kDLCPU || t.device.device_type == kDLCUDAHost;
  bool gpu = t.device.device_type == kDLCUDA;
  bool row_major = t.ndim <= Shape::max_rank;
  Shape shape;
  for (int d = 0; row_major && d < t.ndim; ++d) shape.push_back(t.shape[d]);
  row_major = row_major && dtype && checked_bytes(*dtype, shape);
  int64_t stride = 1;
  for (int d = t.ndim - 1; t.strides && row_major && d >= 0; stride *= t.shape[d--])
    row_major = t.shape[d] == 1 || t.strides[d] == stride || shape.numel() == 0;
  check_input(
      dtype && (here || gpu) && row_major, Exit::data,
      "from_dlpack: device type {}, type code {} of {} bits, {} dims, row-major {}; expected "
      "a CPU or CUDA, f16, f32, f64, bf16, i32, i64 or u8, at most {}, row-major",
      int(t.device.device_type), t.dtype.code, t.dtype.bits, t.ndim, row_major, Shape::max_rank);
  Device device = gpu ? Device{Device::Kind::cuda, t.device.device_id} : cpu;
  return borrow(static_cast<char*>(t.data) + t.byte_offset, shape, *dtype, device, [from] {
    if (from->deleter) from->deleter(from);
  });
}

}  // namespace triax
