#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// The parts of a step that the ranks along an axis share out; all else they have alike.
enum class Cuts : unsigned {
  samples = 1,  ///< of a step
  rows = 2,     ///< of each sample
  layers = 4,
  features = 8,  ///< of layers that are split
  experts = 16,  ///< of mixtures
  weights = 32   ///< each rank trains its own: gradients are not summed
};
constexpr Cuts operator|(Cuts a, Cuts b) { return Cuts(unsigned(a) | unsigned(b)); }
constexpr Cuts operator~(Cuts a) { return Cuts(~unsigned(a)); }
/// True if any of `these` are among them.
constexpr bool any(Cuts all, Cuts these) { return (unsigned(all) & unsigned(these)) != 0; }

/// An axis of a mesh.
struct Axis {
  std::string name;
  Cuts cuts;
  int size = 1;
  auto operator<=>(const Axis&) const = default;
};

/// Axes, by name.
using AxisSet = std::set<std::string, std::less<>>;

/// The number of ranks that share the batch (dp), the layers (pp), each layer (tp), the rows of
/// each sample (cp), and the batch and the experts of each mixture (ep).
struct MeshShape {
  int dp = 1, pp = 1, tp = 1, cp = 1, ep = 1;
  std::vector<Axis> more = {};  ///< axes that a program has added (AxisKind)
  auto operator<=>(const MeshShape&) const = default;

  /// Returns all axes, outermost first: the ranks of the last, who communicate most, are
  /// neighbours. Of those that a program has added, the ones that cut samples are outside of dp,
  /// others inside of cp.
  std::vector<Axis> axes() const;
  /// Returns a mesh of one rank with the same axes.
  MeshShape ones() const {
    MeshShape one{.more = more};
    for (Axis& a : one.more) a.size = 1;
    return one;
  }
  /// Returns the size of an axis, which must be there.
  int& size_of(std::string_view axis);
  int size_of(std::string_view axis) const { return MeshShape(*this).size_of(axis); }
  int size() const { return ranks_along(~Cuts{}); }
  /// Returns the size where each open axis, of size 0, has one rank.
  double least_size() const;
  /// Returns the number of ranks along all axes that cut any of `these`, and none of `but`.
  int ranks_along(Cuts these, Cuts but = {}) const;
  /// Returns the number of ranks with other samples.
  int replicas() const { return ranks_along(Cuts::samples); }
  /// Returns the number of ranks that hold the same layers and slice, with other samples or rows.
  int data() const { return ranks_along(Cuts::samples | Cuts::rows, Cuts::weights); }
  /// Returns the number of ranks of each stage.
  int stage() const { return ranks_along(~Cuts::layers); }
  /// Returns the axes that cut any of `these`, and none of `but`.
  AxisSet along(Cuts these, Cuts but = {}) const;
  /// Returns the axes that are not in `these`.
  AxisSet others(const AxisSet& these) const;
  /// Returns the place of the world's rank among those along `along`, in the order of axes().
  int place(int rank, const AxisSet& along) const;
  /// Returns the first rank of the world at that place of the axis.
  int first_rank(std::string_view axis, int place) const;
};

/// Returns `dp 2 x pp 1 x tp 2`, with those of the other axes that have more than one rank.
std::string str(const MeshShape& shape);
/// Returns the rank's place on each of those axes, `dp 1, pp 0, tp 0`.
std::string place_of(const MeshShape& shape, int rank);
/// Returns the size of each of those axes, `dp=2, pp=open, tp=2`: open where it is 0.
std::string given_axes(const MeshShape& shape);
/// Returns the flags of such a mesh in place of `other`'s, `--dp 2 --pp 1 --tp 2`, with those of
/// the other axes that have more than one rank in either.
std::string flags(const MeshShape& shape, const MeshShape& other = {});

/// The ranks of a world on the axes of a shape, with a communicator along any of them. Groups of
/// one rank cost nothing, so code never asks whether an axis is used.
class Mesh {
 public:
  /// Collective. Throws Error 78, naming shapes that fit, unless the shape has as many ranks as the
  /// world. `world` must outlive the mesh.
  Mesh(Communicator& world, MeshShape shape);

  const MeshShape& shape() const { return shape_; }
  Communicator& world() const { return world_; }
  /// Returns the ranks that differ from this one along these axes alone. Collective over the world
  /// where a set is asked for first; the constructor has asked for those below.
  Communicator& over(const AxisSet& along);
  /// Returns the ranks with the same layers, rows and slice, and other samples: of dp, and of ep.
  Communicator& dp() const { return *dp_; }
  /// Returns the ranks with the same data and slice, and other layers; rank is the stage.
  Communicator& pp() const { return *pp_; }
  /// Returns the ranks with the same data and layers, and another slice.
  Communicator& tp() const { return *tp_; }
  /// Returns the ranks with the same samples, layers and slice, and other rows.
  Communicator& cp() const { return *cp_; }
  /// Returns the ranks of ep: neighbours with other samples, and other experts.
  Communicator& ep() const { return *ep_; }
  /// Returns the ranks with the same layers and slice, and other samples or rows: gradients are
  /// summed over them.
  Communicator& data() const { return *data_; }
  /// Returns those of data() that hold the same of what is cut along `cut` too, such as experts, as
  /// over() does.
  Communicator& data_without(const AxisSet& cut);
  /// Returns the axes of data().
  AxisSet data_axes() const { return shape_.along(Cuts::samples | Cuts::rows, Cuts::weights); }
  /// Returns every group that over() has made.
  const std::map<AxisSet, std::unique_ptr<Communicator>>& groups() const { return groups_; }
  /// Returns the first and the last stage of one replica and slice, which share tied parameters: of
  /// size 1 for stages between them, and where there is one stage.
  Communicator& ends() const { return *ends_; }

 private:
  Communicator& world_;
  MeshShape shape_;
  std::map<AxisSet, std::unique_ptr<Communicator>> groups_;
  Communicator *dp_, *pp_, *tp_, *cp_, *ep_, *data_;
  std::unique_ptr<Communicator> ends_;
};

/// Throws Error 78 unless `shape` has `ranks` ranks, naming up to three shapes that have, those
/// most like it first. `fits` says which shapes may be named.
void check_shape(const MeshShape& shape, int ranks,
                 const std::function<bool(const MeshShape&)>& fits = {});

/// Returns the ranks of each group, one line per axis that has more than one.
std::string describe(const MeshShape& shape);

}  // namespace triax::parallel
