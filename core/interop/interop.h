#pragma once
#include <functional>
#include <string>

#include "triax/core/tensor.h"

// Values that other libraries hold, and values for people. NumPy's files: core/interop/npy.h;
// tensors of Python's libraries: core/interop/dlpack.h.
namespace triax {

/// Returns a tensor, row-major, over memory of the caller: both see what the other writes. `data`
/// has to stay where it is until `release` is called, when the last tensor that shares the memory
/// has gone. Throws for a null `data` of a tensor with elements.
Tensor borrow(void* data, const Shape& shape, DType dtype, Device device = cpu,
              std::function<void()> release = {});

/// Returns the values in nested brackets, six digits each, as NumPy prints them: of a dim of a
/// tensor with more than a thousand elements the first and last three. Copies from a GPU.
std::string to_string(const Tensor& x);

}  // namespace triax
