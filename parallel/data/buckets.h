#pragma once
#include <vector>

#include "nn/parameter.h"

namespace triax::parallel {

/// Where a parameter lies in a flat bucket, in elements.
struct BucketPiece {
  nn::Parameter* parameter;
  int64_t begin;
  int64_t length;
};

/// Parameters that are reduced together.
struct BucketLayout {
  std::vector<BucketPiece> pieces;
  int64_t length = 0;  ///< with the padding between pieces
};

struct BucketSizes {
  int64_t first =
      int64_t{1} << 18;        ///< elements (1 MiB of f32): small, so that reducing starts soon
  int64_t other = 25 * first;  ///< elements
};

/// Cut parameters into buckets in reverse order of declaration, which is about the order in which
/// backward completes them. A bucket is closed before it would exceed its size; a larger parameter
/// gets one of its own. Pieces start at multiples of 16 elements.
std::vector<BucketLayout> lay_out(const std::vector<nn::Parameter*>& parameters,
                                  const BucketSizes& sizes);

}  // namespace triax::parallel
