#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "triax/core/device.h"
#include "triax/core/dtype.h"
#include "triax/core/shape.h"
#include "triax/core/storage.h"

namespace triax {

namespace autograd {
struct Meta;  // defined in autograd/node.h; core only carries the pointer
}

/// A handle to a strided array: copies share values, never bytes. An undefined Tensor stands for
/// "none". Values change only through kernels, `fill` and `copy_`; ops make new tensors.
///
/// The views below know nothing of gradients and refuse a tensor with a history; their
/// differentiable forms are the free functions of autograd/ops.h.
class Tensor {
 public:
  Tensor() = default;
  /// Views `storage`; offset and strides in elements.
  Tensor(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape, const Shape& strides,
         int64_t offset = 0);

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  const Shape& strides() const;
  int64_t size(int dim) const;  ///< negative counts from the end
  int rank() const;
  int64_t numel() const;
  DType dtype() const;
  Device device() const;
  bool is_contiguous() const;  ///< row-major without gaps
  size_t bytes() const;        ///< numel times the size of an element
  int64_t offset() const;

  /// Returns the address of the first element, on CUDA in device memory. Throws while released.
  void* data() const;
  /// Returns the first element's address, typed; throws if `T` is not the dtype.
  template <class T> T* data() const {
    require(dtype_of<T>());
    return static_cast<T*>(data());
  }
  const std::shared_ptr<Storage>& storage() const;

  /// Returns other sizes over the same elements; needs a contiguous tensor. One size may be -1.
  Tensor view(Shape shape) const;
  Tensor transpose(int dim0, int dim1) const;
  /// Returns elements [begin, begin + length) of `dim`.
  Tensor narrow(int dim, int64_t begin, int64_t length) const;
  /// Stretches sizes of 1 (and adds dims in front), without copying.
  Tensor expand(const Shape& shape) const;

  /// Returns this tensor if it is contiguous, else a row-major copy, refused as a view is.
  Tensor contiguous() const;
  /// Returns this tensor if it fits, else a converted copy. Throws for a tensor with a history.
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;
  /// Returns a new handle on the same bytes, without history.
  Tensor detach() const;

  /// Returns the one element, converted to double (of an i64 exact up to 2^53).
  double item() const;
  /// Returns a copy in row-major order; `T` must be the dtype.
  template <class T> std::vector<T> to_host() const {
    require(dtype_of<T>());
    std::vector<T> values(static_cast<size_t>(numel()));
    copy_to_host(values.data());
    return values;
  }

  /// True if nobody else can see these values, so that they may be changed in place.
  bool exclusive() const;
  /// True for the same handle (not: equal values).
  bool is(const Tensor& o) const { return impl_ == o.impl_; }
  std::shared_ptr<autograd::Meta>& meta() const;
  bool& is_leaf() const;                     ///< has a gradient, and no op made it
  std::weak_ptr<const void> handle() const;  ///< shared by its copies, to count them

 private:
  struct Impl;
  Impl& impl() const;  // throws if undefined
  void require(DType) const;
  void copy_to_host(void* to) const;
  Tensor reshaped(const Shape& shape, const Shape& strides, int64_t offset) const;
  std::shared_ptr<Impl> impl_;
};
using Tensors = std::vector<Tensor>;

/// `[2, 3] f32 on cpu`, for error texts.
std::string str(const Tensor& x);

/// Returns a tensor's bytes; none if they, or one of its strides, overflow.
std::optional<uint64_t> checked_bytes(DType dtype, const Shape& shape);

/// Returns a contiguous tensor, values not initialised.
Tensor empty(const Shape& shape, DType dtype, Device device);
Tensor empty_like(const Tensor& x);
Tensor zeros(const Shape& shape, DType dtype, Device device);
Tensor zeros_like(const Tensor& x);
Tensor full(const Shape& shape, double value, DType dtype, Device device);
/// Returns a contiguous copy with bytes of its own. Throws for a tensor with a history.
Tensor clone(const Tensor& x);
/// Copies `values`; there must be as many as `shape` has elements.
Tensor from_bytes(const void* values, size_t count, const Shape& shape, DType dtype, Device device);
template <class T> Tensor from_host(std::span<const T> values, const Shape& shape, Device device) {
  return from_bytes(values.data(), values.size(), shape, dtype_of<T>(), device);
}
template <class T>
Tensor from_host(const std::vector<T>& values, const Shape& shape, Device device) {
  return from_host(std::span<const T>(values), shape, device);
}

/// Copies in place; `to` keeps shape, dtype and device. Shapes must be equal; dtypes are converted.
/// Neither may have a history, which would not see it (a leaf has none). Backward throws if an op
/// has kept what was in the storage that was written to.
void copy_(const Tensor& to, const Tensor& from);
void fill_(const Tensor& x, double value);

}  // namespace triax
