#include "parallel/mesh.h"

#include <algorithm>
#include <vector>

#include "core/check.h"

namespace triax::parallel {
namespace {

struct Place3 {
  int dp, pp, tp;
};

Place3 place_of(int rank, MeshShape s) {
  return {rank / s.tp % s.dp, rank / (s.tp * s.dp), rank % s.tp};
}

/// The groups of one axis: ranks that differ in nothing else.
template <class Key> std::string groups(int ranks, MeshShape s, Key key) {
  std::string text;
  std::vector<int> seen;
  for (int r = 0; r < ranks; ++r) {
    int color = key(place_of(r, s));
    if (std::find(seen.begin(), seen.end(), color) != seen.end()) continue;
    seen.push_back(color);
    std::vector<int> members;
    for (int other = r; other < ranks; ++other)
      if (key(place_of(other, s)) == color) members.push_back(other);
    text += fmt::format(" {{{}}}", fmt::join(members, ", "));
  }
  return text;
}

}  // namespace

Mesh::Mesh(Communicator& world, MeshShape s) : world_(world), shape_(s) {
  check_input(s.dp >= 1 && s.pp >= 1 && s.tp >= 1 && s.dp * s.pp * s.tp == world.size(),
              Exit::config, "mesh: dp {} * pp {} * tp {} = {} does not equal the {} ranks started",
              s.dp, s.pp, s.tp, s.dp * s.pp * s.tp, world.size());
  Place3 me = place_of(world.rank(), s);
  dp_ = world.split(me.pp * s.tp + me.tp, me.dp, "dp");
  pp_ = world.split(me.dp * s.tp + me.tp, me.pp, "pp");
  tp_ = world.split(me.pp * s.dp + me.dp, me.tp, "tp");
  model_ = world.split(me.dp, me.pp * s.tp + me.tp, "model");
}

std::string Mesh::describe() const {
  auto [dp, pp, tp] = shape_;
  int n = world_.size();
  std::string text =
      fmt::format("{} rank{}: dp {} x pp {} x tp {}", n, n == 1 ? "" : "s", dp, pp, tp);
  MeshShape s = shape_;
  if (dp > 1) text += "\n  dp" + groups(n, s, [&](Place3 p) { return p.pp * s.tp + p.tp; });
  if (pp > 1) text += "\n  pp" + groups(n, s, [&](Place3 p) { return p.dp * s.tp + p.tp; });
  if (tp > 1) text += "\n  tp" + groups(n, s, [&](Place3 p) { return p.pp * s.dp + p.dp; });
  return text;
}

}  // namespace triax::parallel
