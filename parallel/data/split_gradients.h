#pragma once
#include <set>
#include <string>

#include "triax/parallel/data/buckets/held_model.h"

namespace triax::parallel {

/// The gradients of parameters that the ranks along an axis of features hold alike, of which each
/// has computed the whole or a part.
class SplitGradients {
 public:
  explicit SplitGradients(const HeldModel& m) : m_(m) {}
  /// Adds up the parts of parameters that saw only this rank's rows (sequence parallelism) or
  /// features. Collective over those axes.
  void sum_parts();
  /// Implements DataParallel::check_replicas.
  void check_replicas(double loss) const;

 private:
  /// Checks the parts before they are summed, in the first step with finite gradients: ranks that
  /// see rows or features of their own do not compute the same to the last bit. Where all parts are
  /// alike, the rows themselves may be: nothing is said.
  void look_at_parts(const HeldModel::AxisRanks& axis);
  void sum_parts(const HeldModel::AxisRanks& axis);
  void check_replicas(const HeldModel::AxisRanks& axis, double loss) const;

  const HeldModel& m_;
  std::set<std::string> looked_at_;  // axes
};

}  // namespace triax::parallel
