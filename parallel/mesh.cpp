#include "triax/parallel/mesh.h"

#include <algorithm>
#include <array>

#include "triax/core/check.h"

namespace triax::parallel {
namespace {

using Fits = std::function<bool(const MeshShape&)>;

/// An axis that all meshes have, and whether texts name it where it has one rank.
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

bool always_named(const Axis& a) {
  return std::ranges::any_of(known, [&](auto& k) { return k.name == a.name && k.always; });
}

/// Returns the axes that texts about `s` and `other` name, in their order: the samples first.
std::vector<Axis> named(const MeshShape& s, const MeshShape& other = {}) {
  auto axes = s.axes(), others = other.axes();
  auto dp = std::ranges::find(axes, "dp", &Axis::name);
  std::rotate(axes.begin(), axes.begin() + 1, dp + 1);
  std::erase_if(axes, [&](auto& a) {
    auto there = std::ranges::find(others, a.name, &Axis::name);
    return !always_named(a) && a.size == 1 && (there == others.end() || there->size == 1);
  });
  return axes;
}

/// Returns `form` of name and size of each of those.
std::string listed(const MeshShape& s, const char* form, const char* between) {
  auto part = [&](auto& a) { return fmt::format(fmt::runtime(form), a.name, a.size); };
  return join(transformed(named(s), part), between);
}

/// Appends the shapes with `ranks` ranks on the first `axes` of those: the first takes what is
/// left.
void append_shapes(MeshShape s, const std::vector<Axis>& axes, int ranks,
                   std::vector<MeshShape>& to) {
  int& last = s.size_of(axes.back().name);
  if (axes.size() == 1) {
    last = ranks;
    to.push_back(s);
    return;
  }
  std::vector<Axis> others(axes.begin(), axes.end() - 1);
  for (last = 1; last <= ranks; ++last)
    if (ranks % last == 0) append_shapes(s, others, ranks / last, to);
}

/// Returns up to three shapes with `ranks` ranks, those that keep most of `wanted` first.
std::vector<MeshShape> shapes_like(const MeshShape& wanted, int ranks, const Fits& fits) {
  std::vector<MeshShape> shapes;
  auto axes = named(wanted);
  append_shapes({.more = wanted.more}, axes, ranks, shapes);
  if (fits) std::erase_if(shapes, [&](const MeshShape& s) { return !fits(s); });
  auto kept = [&](const MeshShape& s) {
    int points = 0;
    for (auto& a : axes) {
      int size = s.size_of(a.name);
      points += 4 * (size == a.size) + 2 * (!any(a.cuts, Cuts::samples) && a.size % size == 0);
    }
    return points;
  };
  std::ranges::stable_sort(shapes, [&](auto& a, auto& b) { return kept(a) > kept(b); });
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
  auto add_more = [&](bool of_samples) {
    for (auto& a : more)
      if (any(a.cuts, Cuts::samples) == of_samples) all.push_back(a);
  };
  for (auto& k : known) {
    if (k.size == &MeshShape::dp) add_more(true);
    if (k.size == &MeshShape::tp) add_more(false);
    all.push_back({k.name, k.cuts, this->*k.size});
  }
  return all;
}

int& MeshShape::size_of(std::string_view axis) {
  for (auto& k : known)
    if (k.name == axis) return this->*k.size;
  auto found = std::ranges::find(more, axis, &Axis::name);
  check(found != more.end(), "mesh: no axis {}", axis);
  return found->size;
}

int MeshShape::ranks_along(Cuts these, Cuts but) const {
  int product = 1;
  for (auto& a : axes())
    if (any(a.cuts, these) && !any(a.cuts, but)) product *= a.size;
  return product;
}

AxisSet MeshShape::along(Cuts these, Cuts but) const {
  AxisSet names;
  for (auto& a : axes())
    if (any(a.cuts, these) && !any(a.cuts, but)) names.insert(a.name);
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
  auto part = [&](auto& a) { return fmt::format("{} {}", a.name, s.place(rank, {a.name})); };
  return join(transformed(named(s), part), ", ");
}
std::string flags(const MeshShape& s, const MeshShape& other) {
  auto flag = [](auto& a) { return fmt::format("--{} {}", a.name, a.size); };
  return join(transformed(named(s, other), flag), " ");
}

std::string given_axes(const MeshShape& s) {
  auto part = [](auto& a) {
    return fmt::format("{}={}", a.name, a.size > 0 ? std::to_string(a.size) : "open");
  };
  return join(transformed(named(s), part), ", ");
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
  auto others = transformed(shapes_like(s, ranks, fits), [&](auto& o) { return flags(o, s); });
  std::string started = counted(ranks, "rank");
  fail(Exit::config,
       "mesh: {} = {} does not equal the {} started\n"
       "  With {} try: {}\n"
       "  For this mesh: mpirun -np {} with the same command, or --comm threads --ranks {}",
       listed(s, "{} {}", " * "), product, started, started, join(others, ", or "), product,
       product);
}

Mesh::Mesh(Communicator& world, MeshShape s) : world_(world), shape_(s) {
  check_shape(s, world.size());
  tp_ = &over({"tp"});
  dp_ = &over(s.along(Cuts::samples));
  pp_ = &over({"pp"});
  cp_ = &over({"cp"});
  ep_ = &over({"ep"});
  AxisSet data = data_axes();
  AxisSet samples = s.along(Cuts::samples);
  if (s.cp == 1) samples.insert("cp");  // costs nothing
  data_ = data == samples ? dp_ : &over(data);
  for (const Axis& a : s.more) (void)over({a.name});
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
  for (const Axis& a : shape_.axes()) {
    if (!along.contains(a.name)) continue;
    ++found;
    if (always_named(a) || along.size() == 1 || a.size > 1) names.push_back(a.name);
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

Communicator& Mesh::data_without(const AxisSet& cut) {
  AxisSet rest = data_axes();
  if (std::erase_if(rest, [&](auto& axis) { return cut.contains(axis); }) == 0) return *data_;
  return over(rest);
}

std::string describe(const MeshShape& s) {
  std::string all = fmt::format("mesh: {} = {}\n", str(s), counted(s.size(), "rank"));
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
