#pragma once
#include <string>
#include <vector>

namespace triax::parallel {

/// The pipeline stages that hold a parameter, in ascending order.
struct HeldParameter {
  std::string name;
  bool tied = false;
  std::vector<int> stages;
};
/// Throws Error 78 unless gradients of all of them are summed: one stage, or, if it is tied and the
/// last layer is on another stage than the first, stages 0 and `last`.
void check_holders(const HeldParameter& p, int last);

}  // namespace triax::parallel
