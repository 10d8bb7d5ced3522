#pragma once
#include <vector>

#include "nn/layer.h"

namespace triax::parallel {

/// Parameters that may share a bucket, in order of declaration.
struct ParameterGroup {
  std::vector<nn::Parameter*> parameters;
  int passes = 1;      ///< backward passes that each sees per micro-batch: chunks that use it
  bool whole = false;  ///< one bucket however large: a unit that comes and goes as a whole
};

/// How parameters are grouped. A tied parameter is alone, so that both ends of a pipeline cut it at
/// the same places, and so is one that several chunks use; chunks of a pipeline finish at different
/// times and share nothing else.
enum class Grouping {
  by_chunk,  ///< reduced together: one group for each chunk
  by_layer   ///< gathered together: one group for each layer
};
/// Groups in about the order in which backward completes them. Without chunks, all of `model`.
std::vector<ParameterGroup> group(nn::Module& model, const std::vector<nn::Layers>& chunks,
                                  Grouping grouping);

/// Where a parameter lies in a flat bucket, in elements.
struct BucketPiece {
  nn::Parameter* parameter;
  int64_t begin;
  int64_t length;
};

/// Parameters that are reduced together.
struct BucketLayout {
  std::vector<BucketPiece> pieces;
  int64_t length = 0;  ///< with the padding between and behind pieces
  int passes = 1;      ///< of their group
};

struct BucketSizes {
  int64_t first =
      int64_t{1} << 18;        ///< elements (1 MiB of f32): small, so that reducing starts soon
  int64_t other = 25 * first;  ///< elements
};

/// Cut groups into buckets, each in reverse order of declaration, which is about the order in which
/// backward completes them. A bucket is closed before it would exceed its size; a larger parameter
/// gets one of its own. Pieces start at multiples of 16 elements, and `ranks` equal slices of a
/// bucket do too.
std::vector<BucketLayout> lay_out(const std::vector<ParameterGroup>& groups,
                                  const BucketSizes& sizes, int ranks);

}  // namespace triax::parallel
