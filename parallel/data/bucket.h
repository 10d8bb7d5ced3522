#pragma once
#include <functional>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/data/buckets.h"

namespace triax::parallel {

/// What one rank has of one bucket, and what is under way with it.
struct Bucket {
  BucketLayout layout;
  Tensor weight, grad;        ///< flat, of the layout's length; their bytes may come and go
  Tensor my_weight, my_grad;  ///< flat: what this rank's optimizer updates, from element `my_first`
  int64_t my_first = 0;

  std::vector<int64_t> fired = {};  ///< backward passes completed in this step, per piece
  int64_t due = 0;                  ///< backward passes each piece will see in this step
  int64_t reductions = 0;           ///< started in this step
  Tensor sending = {}, arriving = {};
  Work reducing = {};

  int users = 0;  ///< layers at work that need the gathered weights
  Work gathering = {};

  Bucket(const BucketLayout& l) : layout(l), fired(l.pieces.size()) {}
  /// Passes that all pieces have completed.
  int64_t complete() const;
  /// The range of a piece that lies in this rank's slice, from the slice's first element.
  Range mine(const BucketPiece& piece) const;
  /// What of the slice belongs to such parameters. Neighbours are one range, with the padding
  /// between them, which is zero and stays zero.
  std::vector<Range> mine(const std::function<bool(const nn::Parameter&)>& such) const;
};

}  // namespace triax::parallel
