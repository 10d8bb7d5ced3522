#pragma once
#include <functional>
#include <string>

#include "triax/core/tensor.h"

// Values that other libraries hold, and values for people. NumPy's files: core/interop/npy.h;
// tensors of Python's libraries: core/interop/dlpack.h.
namespace triax {

/// Returns a tensor, row-major, over memory of the caller: both see what the other writes. `data`
/// has to stay where it is until `release` is called, once, when the last tensor that shares the
/// memory has gone, on a GPU after what was queued there. On a GPU work that writes the memory has
/// to be done. Throws for a null `data` of a tensor with elements, and one between elements.
Tensor borrow(void* data, const Shape& shape, DType dtype, Device device = cpu,
              std::function<void()> release = {});

/// Returns the values in nested brackets as NumPy prints them, floats with six digits: of a dim of
/// a tensor with more than a thousand elements the first and last three. Copies from a GPU.
std::string to_string(const Tensor& x);

}  // namespace triax
