#pragma once
#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// Sizes of the axes: data, pipeline and tensor parallelism.
struct MeshShape {
  int dp = 1, pp = 1, tp = 1;
};

/// The ranks as a three-dimensional grid: rank = (pp * DP + dp) * TP + tp, so that tp neighbours
/// are closest and pp neighbours farthest (Narayanan et al., "Efficient large-scale language model
/// training on GPU clusters", 2021, section 3).
class Mesh {
 public:
  /// Collective. `world` must outlive it. Error 78 unless dp * pp * tp is the number of ranks.
  Mesh(Communicator& world, MeshShape shape);

  Communicator& world() const { return world_; }
  Communicator& dp() const { return *dp_; }        ///< replicas of this rank's part
  Communicator& pp() const { return *pp_; }        ///< stages of this rank's replica
  Communicator& tp() const { return *tp_; }        ///< slices of this rank's stage
  Communicator& model() const { return *model_; }  ///< all parts of this rank's replica
  MeshShape shape() const { return shape_; }

  /// Which ranks form each group, a line an axis: `dp 2: {0, 1}`.
  std::string describe() const;

 private:
  Communicator& world_;
  MeshShape shape_;
  std::unique_ptr<Communicator> dp_, pp_, tp_, model_;
};

}  // namespace triax::parallel
