#pragma once
#include <vector>

#include "triax/optim/slot.h"
#include "triax/parallel/data/buckets/buckets.h"
#include "triax/parallel/data/buckets/held_model.h"

namespace triax::parallel {

/// The slots of an optimizer: this rank's slice of each bucket, cut where rates change.
class UpdateSlots {
 public:
  /// Adds a bucket that has its slices. Trained buckets come first.
  void cut(Bucket& b);
  std::vector<optim::Slot> slots(const HeldModel& model) const;
  /// Returns the weights of each slot, then the frozen ones that this rank holds.
  Tensors weights() const;
  /// Returns the pieces of parameters in slot `i` (or in those weights), in order.
  std::vector<FlatPiece> pieces(size_t i) const;

 private:
  struct Place {
    Bucket* bucket;
    Range range;  // a part of the bucket's slice
    optim::Rates rates;
  };
  void add_matrices(const HeldModel& model, std::vector<optim::Slot>& slots) const;

  std::vector<Place> places_;  // one for each of weights()
};

}  // namespace triax::parallel
