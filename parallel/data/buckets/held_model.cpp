#include "parallel/data/buckets/held_model.h"

namespace triax::parallel {

Bucket* HeldModel::holder(const nn::Parameter* p) const {
  for (auto& b : buckets)
    for (auto& piece : b->layout.pieces)
      if (piece.parameter == p) return b.get();
  return nullptr;
}

Communicator& HeldModel::over(const nn::Parameter& p) const {
  if (!mesh) return dp;
  AxisSet cut;
  for (auto& [axis, how] : p.shard.along)
    if (how == nn::Along::slice) cut.insert(axis);
  return mesh->data_without(cut);
}

/// True for one of tp replicas, of tied copies and, where dp does not slice it, of dp replicas.
bool HeldModel::owns(const nn::Parameter& p) const {
  bool copy = (p.tied && ends && ends->rank() > 0) ||
              (tp && tp->rank() > 0 && !p.shard.is("tp", nn::Along::slice));
  return !copy && (cuts(p.frozen) || over(p).rank() == 0);
}

}  // namespace triax::parallel
