#include "parallel/data/buckets/held_model.h"

namespace triax::parallel {

Bucket* HeldModel::holder(const nn::Parameter* p) const {
  for (auto& b : buckets)
    for (auto& piece : b->layout.pieces)
      if (piece.parameter == p) return b.get();
  return nullptr;
}

/// True for one of tp replicas, of tied copies and, where dp does not slice it, of dp replicas.
bool HeldModel::owns(const nn::Parameter& p) const {
  bool copy = p.tied && ends && ends->rank() > 0;
  return !copy && p.shard.first_replica && (cuts(p.frozen) || dp.rank() == 0);
}

}  // namespace triax::parallel
