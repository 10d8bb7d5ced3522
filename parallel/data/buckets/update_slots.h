#pragma once
#include <vector>

#include "optim/slot.h"
#include "parallel/data/buckets/buckets.h"

namespace triax::parallel {

/// What an optimizer updates: this rank's slice of each bucket, cut where rates change.
class UpdateSlots {
 public:
  /// Adds a bucket that has its slices; those that are trained come first.
  void cut(Bucket& b);
  std::vector<optim::Slot> slots() const;
  /// Returns the weights of each slot, then the frozen ones that this rank holds.
  Tensors weights() const;
  /// Returns what lies in slot `i` (or in those weights), in order.
  std::vector<FlatPiece> pieces(size_t i) const;

 private:
  struct Place {
    Bucket* bucket;
    Range range;  // of the bucket's slice
    optim::Rates rates;
  };
  std::vector<Place> places_;  // one for each of weights()
};

}  // namespace triax::parallel
