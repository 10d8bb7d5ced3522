#include "parallel/mesh.h"

#include <algorithm>
#include <vector>

#include "core/check.h"

namespace triax::parallel {
namespace {

using Fits = std::function<bool(const MeshShape&)>;

/// Returns up to three shapes with `ranks` ranks, those that keep most of `wanted` first.
std::vector<MeshShape> shapes_like(const MeshShape& wanted, int ranks, const Fits& fits) {
  std::vector<MeshShape> shapes;
  for (int tp = 1; tp <= ranks; ++tp)
    for (int pp = 1; pp * tp <= ranks; ++pp)
      if (ranks % (pp * tp) == 0) shapes.push_back({ranks / (pp * tp), pp, tp});
  if (fits) std::erase_if(shapes, [&](const MeshShape& s) { return !fits(s); });
  auto kept = [&](const MeshShape& s) {
    return 4 * (s.tp == wanted.tp) + 4 * (s.pp == wanted.pp) + 4 * (s.dp == wanted.dp) +
           2 * (wanted.tp % s.tp == 0) + 2 * (wanted.pp % s.pp == 0);
  };
  std::stable_sort(shapes.begin(), shapes.end(),
                   [&](auto& a, auto& b) { return kept(a) > kept(b); });
  shapes.resize(std::min<size_t>(shapes.size(), 3));
  return shapes;
}

/// Returns `{0, 1} {2, 3}`: the ranks grouped by `color`, in order.
template <class Color> std::string groups(const MeshShape& shape, Color color) {
  constexpr size_t most = 8;
  std::vector<std::vector<int>> members(static_cast<size_t>(shape.size()));
  for (int r = 0; r < shape.size(); ++r) members[size_t(color(point_of(shape, r)))].push_back(r);
  std::erase_if(members, [](auto& m) { return m.empty(); });
  std::string text;
  for (size_t g = 0; g < std::min(most, members.size()); ++g)
    text += fmt::format(" {{{}}}", join(members[g], ", "));
  if (members.size() > most) text += fmt::format(" and {} more", members.size() - most);
  return text;
}

using At = const MeshPoint&;

int dp_color(const MeshShape& s, At at) { return at.pp * s.tp + at.tp; }
int pp_color(const MeshShape& s, At at) { return at.dp * s.tp + at.tp; }
int tp_color(const MeshShape& s, At at) { return at.pp * s.dp + at.dp; }

}  // namespace

int rank_of(const MeshShape& s, const MeshPoint& at) {
  return (at.pp * s.dp + at.dp) * s.tp + at.tp;
}
MeshPoint point_of(const MeshShape& s, int rank) {
  return {.dp = rank / s.tp % s.dp, .pp = rank / (s.tp * s.dp), .tp = rank % s.tp};
}

void check_shape(const MeshShape& s, int ranks, const Fits& fits) {
  check_input(s.dp > 0 && s.pp > 0 && s.tp > 0, Exit::config,
              "mesh: dp {}, pp {}, tp {}; each must be at least 1", s.dp, s.pp, s.tp);
  check_input(double(s.dp) * s.pp * s.tp <= 1 << 20, Exit::config,
              "mesh: dp {} * pp {} * tp {} are more than a million ranks; {} started", s.dp, s.pp,
              s.tp, ranks == 1 ? "1 is" : fmt::format("{} are", ranks));
  int64_t product = int64_t{s.dp} * s.pp * s.tp;
  if (product == ranks) return;
  std::vector<std::string> others;
  for (const MeshShape& o : shapes_like(s, ranks, fits))
    others.push_back(fmt::format("--dp {} --pp {} --tp {}", o.dp, o.pp, o.tp));
  const char* plural = ranks == 1 ? "" : "s";
  fail(Exit::config,
       "mesh: dp {} * pp {} * tp {} = {} does not equal the {} rank{} started\n"
       "  With {} rank{} try: {}\n"
       "  For this mesh: mpirun -np {} with the same command, or --comm threads --ranks {}",
       s.dp, s.pp, s.tp, product, ranks, plural, ranks, plural, join(others, ", or "), product,
       product);
}

Mesh::Mesh(Communicator& world, MeshShape s) : world_(world), shape_(s) {
  check_shape(s, world.size());
  using Seat = Communicator::Seat;
  auto split = [&](auto seat, const char* name) {
    return world.split([&](int rank) { return seat(point_of(s, rank)); }, name);
  };
  tp_ = split([&](At at) { return Seat{tp_color(s, at), at.tp}; }, "tp");
  dp_ = split([&](At at) { return Seat{dp_color(s, at), at.dp}; }, "dp");
  pp_ = split([&](At at) { return Seat{pp_color(s, at), at.pp}; }, "pp");
  auto end = [&](int stage) { return stage == 0 || stage == s.pp - 1; };
  ends_ = pp_->split([&](int stage) { return Seat{end(stage) ? 0 : stage, stage}; }, "ends");
}

std::string describe(const MeshShape& s) {
  std::string text = fmt::format("mesh: dp {} x pp {} x tp {} = {} rank{}\n", s.dp, s.pp, s.tp,
                                 s.size(), s.size() == 1 ? "" : "s");
  if (s.tp > 1) text += "  tp   " + groups(s, [&](At at) { return tp_color(s, at); }) + "\n";
  if (s.dp > 1) text += "  dp   " + groups(s, [&](At at) { return dp_color(s, at); }) + "\n";
  if (s.pp > 1) text += "  pp   " + groups(s, [&](At at) { return pp_color(s, at); }) + "\n";
  if (s.dp > 1 && s.pp * s.tp > 1)
    text += "  model" + groups(s, [&](At at) { return at.dp; }) + "\n";
  return text;
}

}  // namespace triax::parallel
