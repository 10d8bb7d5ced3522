#pragma once
#include <string>
#include <vector>

#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

struct HeldModel;

/// A parameter, and the pipeline stages that hold it, in ascending order.
struct HeldParameter {
  std::string name;
  bool tied = false;
  std::vector<int> stages;
};
/// Throws Error 78 unless the gradients of all holders are summed: one stage, or, if it is tied and
/// the last layer is on another stage than the first, stages 0 and `last`.
void check_holders(const HeldParameter& p, int last);

/// Throws Error 76 where ranks of dp have different models or seeds: they would add up gradients of
/// other weights, or train apart. Collective over dp.
void check_same_model(const HeldModel& m);
/// Throws Error 78 for a parameter that two stages hold and nobody sums: it would become two.
/// Collective over pp.
void check_held_once(const HeldModel& m, Communicator& pp);

}  // namespace triax::parallel
