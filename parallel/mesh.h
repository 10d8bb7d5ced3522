#pragma once
#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// The number of ranks that share the batch (dp), the layers (pp) and each layer (tp).
struct MeshShape {
  int dp = 1, pp = 1, tp = 1;
  int size() const { return dp * pp * tp; }
  bool operator==(const MeshShape&) const = default;
};

/// The place of a rank on the mesh.
struct MeshPoint {
  int dp = 0, pp = 0, tp = 0;
  bool operator==(const MeshPoint&) const = default;
};

/// Returns (pp * DP + dp) * TP + tp: tensor-parallel ranks, who communicate most, are neighbours.
int rank_of(const MeshShape& shape, const MeshPoint& at);
MeshPoint point_of(const MeshShape& shape, int rank);

/// The ranks of a world on three axes, with a communicator along each. Groups of one rank cost
/// nothing, so code never asks whether an axis is used.
class Mesh {
 public:
  /// Collective. Throws Error 78, naming shapes that fit, unless the shape has as many ranks as the
  /// world. `world` must outlive the mesh.
  Mesh(Communicator& world, MeshShape shape);

  const MeshShape& shape() const { return shape_; }
  Communicator& world() const { return world_; }
  /// Returns the ranks with the same layers and slice of them, and other data.
  Communicator& dp() const { return *dp_; }
  /// Returns the ranks with the same data and slice, and other layers; rank is the stage.
  Communicator& pp() const { return *pp_; }
  /// Returns the ranks with the same data and layers, and another slice.
  Communicator& tp() const { return *tp_; }
  /// Returns the first and the last stage of one replica and slice, which share tied parameters: of
  /// size 1 for stages between them, and where there is one stage.
  Communicator& ends() const { return *ends_; }

 private:
  Communicator& world_;
  MeshShape shape_;
  std::unique_ptr<Communicator> dp_, pp_, tp_, ends_;
};

/// Throws Error 78 unless `shape` has `ranks` ranks, naming up to three shapes that have, those
/// most like it first. `fits` says which shapes may be named.
void check_shape(const MeshShape& shape, int ranks,
                 const std::function<bool(const MeshShape&)>& fits = {});

/// Returns the ranks of each group, one line per axis that has more than one.
std::string describe(const MeshShape& shape);

}  // namespace triax::parallel
