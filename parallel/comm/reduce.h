#pragma once
#include <cstddef>
#include <span>

#include "parallel/comm/call.h"

namespace triax::parallel {

/// to[k][i] = from[0][i] op from[1][i] op ... for i in [0, count), for every k; null destinations
/// are left out. From left to right, in f32 for f16 and bf16 and rounded once. A destination may be
/// one of the sources, otherwise nothing overlaps.
void reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> from,
            std::span<std::byte* const> to, int64_t count);

}  // namespace triax::parallel
