#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "triax/parallel/comm/call.h"

namespace triax::parallel {

/// to[k][i] = from[0][i] op from[1][i] op ... for i in [0, count), for every k; null destinations
/// are left out. From left to right, in f32 for f16 and bf16 and rounded once. A destination may be
/// one of the sources, otherwise nothing overlaps.
void reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> from,
            std::span<std::byte* const> to, int64_t count);

/// The tensors of one collective, by rank, where all of them can be seen. Null where a rank sends
/// or receives nothing (or where somebody else writes).
struct RankBuffers {
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
};

/// Returns the amount of work: elements, each one sum or one copy (to one or to all ranks),
/// independent of the others. Slices of an all_to_all that are shorter than the largest count as
/// much as it.
int64_t elements(const Call& call, int ranks);

/// Does elements [begin, end) of the work. Any rank can do any part, in any order, with the same
/// result; this is what makes a collective need no thread of its own.
void move(const Call& call, const RankBuffers& buffers, int64_t begin, int64_t end);

/// The size of the pieces, in bytes, into which ranks that share the work cut it.
inline constexpr int64_t piece_bytes = 1 << 17;

}  // namespace triax::parallel
