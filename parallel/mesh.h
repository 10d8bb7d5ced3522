#pragma once
#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// How many ranks share the batch (dp), the layers (pp) and each layer (tp).
struct MeshShape {
  int dp = 1, pp = 1, tp = 1;
  int size() const { return dp * pp * tp; }
  bool operator==(const MeshShape&) const = default;
};

/// Where a rank stands on the mesh.
struct MeshPoint {
  int dp = 0, pp = 0, tp = 0;
  bool operator==(const MeshPoint&) const = default;
};

/// rank = (pp * DP + dp) * TP + tp: tensor-parallel ranks, who talk most, are neighbours.
int rank_of(const MeshShape& shape, const MeshPoint& at);
MeshPoint point_of(const MeshShape& shape, int rank);

/// The ranks of a world on three axes, with a communicator along each. Groups of one rank cost
/// nothing, so code never asks whether an axis is used.
class Mesh {
 public:
  /// Collective. Throws Error 78, naming shapes that would do, unless the shape has as many ranks
  /// as the world. `world` must outlive the mesh.
  Mesh(Communicator& world, MeshShape shape);

  const MeshShape& shape() const { return shape_; }
  Communicator& world() const { return world_; }
  /// Same layers, same slice of them, other data.
  Communicator& dp() const { return *dp_; }
  /// Same data and slice, other layers; rank is the stage.
  Communicator& pp() const { return *pp_; }
  /// Same data and layers, other slice.
  Communicator& tp() const { return *tp_; }
  /// The first and the last stage of one replica and slice, who share tied parameters: of size 1
  /// for stages between them, and where there is one stage.
  Communicator& ends() const { return *ends_; }

 private:
  Communicator& world_;
  MeshShape shape_;
  std::unique_ptr<Communicator> dp_, pp_, tp_, ends_;
};

/// Throws Error 78 unless `shape` has `ranks` ranks, naming up to three shapes that have, those
/// most like it first. `fits`: which may be named.
void check_shape(const MeshShape& shape, int ranks,
                 const std::function<bool(const MeshShape&)>& fits = {});

/// Which ranks form each group, one line per axis that has more than one.
std::string describe(const MeshShape& shape);

}  // namespace triax::parallel
