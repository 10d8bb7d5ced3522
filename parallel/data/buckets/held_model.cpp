#include "triax/parallel/data/buckets/held_model.h"

namespace triax::parallel {

Bucket* HeldModel::holder(const nn::Parameter* p) const {
  for (auto& b : buckets)
    for (auto& piece : b->layout.pieces)
      if (piece.parameter == p) return b.get();
  return nullptr;
}

void HeldModel::join(Mesh& on) {
  mesh = &on;
  tp = &on.tp();
  all = &on.world();
  for (const Axis& a : on.shape().axes()) {
    bool replicated = cuts(false) && options.replicated.contains(a.name);
    if (any(a.cuts, Cuts::features)) features.push_back({a.name, &on.over({a.name})});
    if (replicated || any(a.cuts, Cuts::weights)) copies.push_back({a.name, &on.over({a.name})});
  }
}

Communicator& HeldModel::over(const nn::Parameter& p) const {
  if (!mesh) return dp;
  AxisSet cut = cuts(false) ? options.replicated : AxisSet{};
  for (auto& [axis, how] : p.shard.along)
    if (how == nn::Along::slice) cut.insert(axis);
  return cut.empty() ? dp : mesh->data_without(cut);
}

/// True for one of tp replicas, of tied copies and, where dp does not slice it, of dp replicas.
bool HeldModel::owns(const nn::Parameter& p) const {
  bool copy = p.tied && ends && ends->rank() > 0;
  for (auto* axes : {&features, &copies})
    for (auto& [name, ranks] : *axes)
      copy = copy || (ranks->rank() > 0 && !p.shard.is(name, nn::Along::slice));
  return !copy && (cuts(p.frozen) || over(p).rank() == 0);
}

}  // namespace triax::parallel
