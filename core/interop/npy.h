#pragma once
#include <string>

#include "triax/core/tensor.h"

// NumPy's files of one array (numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
namespace triax {

/// Reads an array on the CPU: little-endian f2, f4, f8, i4, i8, u1 or b1 (as u8) in C order, of
/// any version of the format. Throws Error 65 with path and cause for others.
Tensor load_npy(const std::string& path);

/// Writes a tensor in version 1.0 of the format, whole or not at all. bf16, which NumPy has not,
/// is refused.
void save_npy(const std::string& path, const Tensor& x);

}  // namespace triax
