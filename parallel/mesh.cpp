#include "parallel/mesh.h"

#include <algorithm>
#include <array>

#include "core/check.h"

namespace triax::parallel {
namespace {

using Fits = std::function<bool(const MeshShape&)>;

/// An axis that meshes have, and whether texts name it where it has one rank.
struct Known {
  const char* name;
  Cuts cuts;
  int MeshShape::*size;
  bool always = true;
};
constexpr auto known =
    std::to_array<Known>({{"pp", Cuts::layers, &MeshShape::pp},
                          {"dp", Cuts::samples, &MeshShape::dp},
                          {"ep", Cuts::samples | Cuts::experts, &MeshShape::ep, false},
                          {"cp", Cuts::rows, &MeshShape::cp, false},
                          {"tp", Cuts::features, &MeshShape::tp}});

/// Returns the axes that texts about `s` and `other` name, in their order: the samples first.
std::vector<Known> named(const MeshShape& s, const MeshShape& other = {}) {
  std::vector<Known> axes(known.begin(), known.end());
  std::swap(axes[0], axes[1]);
  std::erase_if(axes, [&](auto& k) { return !k.always && s.*k.size == 1 && other.*k.size == 1; });
  return axes;
}

/// Returns `form` of name and size of each of those.
std::string listed(const MeshShape& s, const char* form, const char* between) {
  std::vector<std::string> parts;
  for (auto& k : named(s)) parts.push_back(fmt::format(fmt::runtime(form), k.name, s.*k.size));
  return join(parts, between);
}

/// Appends the shapes with `ranks` ranks on the first `axes` of those: the first takes what is
/// left.
void append_shapes(MeshShape s, const std::vector<Known>& axes, int ranks,
                   std::vector<MeshShape>& to) {
  int MeshShape::*last = axes.back().size;
  if (axes.size() == 1) {
    s.*last = ranks;
    to.push_back(s);
    return;
  }
  std::vector<Known> others(axes.begin(), axes.end() - 1);
  for (s.*last = 1; s.*last <= ranks; ++(s.*last))
    if (ranks % (s.*last) == 0) append_shapes(s, others, ranks / (s.*last), to);
}

/// Returns up to three shapes with `ranks` ranks, those that keep most of `wanted` first.
std::vector<MeshShape> shapes_like(const MeshShape& wanted, int ranks, const Fits& fits) {
  std::vector<MeshShape> shapes;
  auto axes = named(wanted);
  append_shapes({}, axes, ranks, shapes);
  if (fits) std::erase_if(shapes, [&](const MeshShape& s) { return !fits(s); });
  auto kept = [&](const MeshShape& s) {
    int points = 0;
    for (auto& k : axes)
      points += 4 * (s.*k.size == wanted.*k.size) +
                2 * (!any(k.cuts, Cuts::samples) && wanted.*k.size % (s.*k.size) == 0);
    return points;
  };
  std::stable_sort(shapes.begin(), shapes.end(),
                   [&](auto& a, auto& b) { return kept(a) > kept(b); });
  shapes.resize(std::min<size_t>(shapes.size(), 3));
  return shapes;
}

/// Returns `{0, 1} {2, 3}`: the ranks grouped along these axes, in order.
std::string groups(const MeshShape& s, const AxisSet& along) {
  constexpr size_t most = 8;
  AxisSet others = s.others(along);
  std::map<int, std::vector<int>> members;
  for (int r = 0; r < s.size(); ++r) members[s.place(r, others)].push_back(r);
  std::string text;
  for (auto& [group, ranks] : members)
    if (size_t(group) < most) text += fmt::format(" {{{}}}", join(ranks, ", "));
  if (members.size() > most) text += fmt::format(" and {} more", members.size() - most);
  return text;
}

}  // namespace

std::vector<Axis> MeshShape::axes() const {
  std::vector<Axis> all;
  for (auto& k : known) all.push_back({k.name, k.cuts, this->*k.size});
  return all;
}

int MeshShape::ranks_along(Cuts these) const {
  int product = 1;
  for (auto& k : known)
    if (any(k.cuts, these)) product *= this->*k.size;
  return product;
}

AxisSet MeshShape::along(Cuts these) const {
  AxisSet names;
  for (auto& k : known)
    if (any(k.cuts, these)) names.insert(k.name);
  return names;
}

double MeshShape::least_size() const {
  double product = 1;
  for (const Axis& a : axes()) product *= std::max(1, a.size);
  return product;
}

AxisSet MeshShape::others(const AxisSet& these) const {
  AxisSet rest;
  for (const Axis& a : axes())
    if (!these.contains(a.name)) rest.insert(a.name);
  return rest;
}

int MeshShape::place(int rank, const AxisSet& along) const {
  int result = 0, step = 1;
  auto all = axes();
  for (auto a = all.rbegin(); a != all.rend(); rank /= a++->size) {
    if (!along.contains(a->name)) continue;
    result += rank % a->size * step;
    step *= a->size;
  }
  return result;
}

int MeshShape::first_rank(std::string_view axis, int place) const {
  int step = 1;
  auto all = axes();
  for (auto a = all.rbegin(); a->name != axis; ++a) step *= a->size;
  return place * step;
}

std::string str(const MeshShape& s) { return listed(s, "{} {}", " x "); }
std::string place_of(const MeshShape& s, int rank) {
  std::vector<std::string> parts;
  for (auto& k : named(s)) parts.push_back(fmt::format("{} {}", k.name, s.place(rank, {k.name})));
  return join(parts, ", ");
}
std::string flags(const MeshShape& s, const MeshShape& other) {
  std::vector<std::string> parts;
  for (auto& k : named(s, other)) parts.push_back(fmt::format("--{} {}", k.name, s.*k.size));
  return join(parts, " ");
}

std::string given_axes(const MeshShape& s) {
  std::vector<std::string> parts;
  for (auto& k : named(s))
    parts.push_back(
        fmt::format("{}={}", k.name, s.*k.size > 0 ? std::to_string(s.*k.size) : "open"));
  return join(parts, ", ");
}

void check_shape(const MeshShape& s, int ranks, const Fits& fits) {
  double product = s.least_size();
  bool positive = std::ranges::all_of(s.axes(), [](auto& a) { return a.size > 0; });
  check_input(positive, Exit::config, "mesh: {}; each must be at least 1",
              listed(s, "{} {}", ", "));
  check_input(product <= 1 << 20, Exit::config,
              "mesh: {} are more than a million ranks; {} started", listed(s, "{} {}", " * "),
              ranks == 1 ? "1 is" : fmt::format("{} are", ranks));
  if (product == ranks) return;
  std::vector<std::string> others;
  for (const MeshShape& o : shapes_like(s, ranks, fits)) others.push_back(flags(o, s));
  const char* plural = ranks == 1 ? "" : "s";
  fail(Exit::config,
       "mesh: {} = {} does not equal the {} rank{} started\n"
       "  With {} rank{} try: {}\n"
       "  For this mesh: mpirun -np {} with the same command, or --comm threads --ranks {}",
       listed(s, "{} {}", " * "), product, ranks, plural, ranks, plural, join(others, ", or "),
       product, product);
}

Mesh::Mesh(Communicator& world, MeshShape s) : world_(world), shape_(s) {
  check_shape(s, world.size());
  tp_ = &over({"tp"});
  dp_ = &over(s.along(Cuts::samples));
  pp_ = &over({"pp"});
  cp_ = &over({"cp"});
  ep_ = &over({"ep"});
  AxisSet data = s.along(Cuts::samples | Cuts::rows);
  data_ = s.cp == 1 ? dp_ : &over(data);
  for (const Axis& a : s.axes())  // what these cut has sums of its own: asked for by all ranks here
    if (a.size > 1 && data.contains(a.name) && any(a.cuts, Cuts::experts | Cuts::features)) {
      AxisSet rest = data;
      rest.erase(a.name);
      (void)over(rest);
    }
  auto end = [&](int stage) { return stage == 0 || stage == s.pp - 1; };
  ends_ = pp_->split(
      [&](int stage) {
        return Communicator::Seat{end(stage) ? 0 : stage, stage};
      },
      "ends");
}

Communicator& Mesh::over(const AxisSet& along) {
  auto& group = groups_[along];
  if (group) return *group;
  size_t found = 0;
  std::vector<std::string> names;
  for (auto& k : known) {
    if (!along.contains(k.name)) continue;
    ++found;
    if (k.always || along.size() == 1 || shape_.*k.size > 1) names.push_back(k.name);
  }
  check(found == along.size(), "mesh: a group over {}; expected axes of {}", join(along, ", "),
        str(shape_));
  AxisSet others = shape_.others(along);
  auto seat = [&](int r) {
    return Communicator::Seat{shape_.place(r, others), shape_.place(r, along)};
  };
  group = world_.split(seat, join(names, " x "));
  return *group;
}

Communicator& Mesh::data_without(const AxisSet& cut) const {
  AxisSet rest = shape_.along(Cuts::samples | Cuts::rows);
  if (std::erase_if(rest, [&](auto& axis) { return cut.contains(axis); }) == 0) return *data_;
  return *groups_.at(rest);
}

std::vector<const Communicator*> Mesh::groups() const {
  std::vector<const Communicator*> all;
  for (auto& [along, group] : groups_) all.push_back(group.get());
  return all;
}

std::string describe(const MeshShape& s) {
  std::string all =
      fmt::format("mesh: {} = {} rank{}\n", str(s), s.size(), s.size() == 1 ? "" : "s");
  auto axes = s.axes();
  auto line = [&](const std::string& what, const AxisSet& along) {
    all += fmt::format("  {:<5}{}\n", what, groups(s, along));
  };
  for (auto a = axes.rbegin(); a != axes.rend(); ++a)
    if (a->size > 1) line(a->name, {a->name});
  int replicas = s.replicas();
  if (replicas > 1 && s.size() > replicas) line("model", s.along(~Cuts::samples));
  return all;
}

}  // namespace triax::parallel
