#pragma once
#include "core/backend.h"

namespace triax::host::emulated {

/// Products of f32 as the level `amx` makes them, with tiles emulated; needs AVX-512.
void multiply_f32(const Matmul& p);

}  // namespace triax::host::emulated
