#pragma once
#include "triax/core/backend.h"

namespace triax::host::emulated {

/// Products of f32 and of bf16 as the level `amx` makes them, with tiles emulated; needs AVX-512,
/// and for bf16 its conversions.
void multiply_f32(const Matmul& p);
void multiply_bf16(const Matmul& p);

}  // namespace triax::host::emulated
