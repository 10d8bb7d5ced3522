#pragma once
#include <array>
#include <vector>

#include "triax/parallel/pipeline/schedule.h"

namespace triax::parallel {

/// A pattern that repeats, two chunks a stage in a V: the slots in which every stage begins the
/// four passes of a micro-batch. The next micro-batch follows `interval` slots later, so that two
/// passes of a stage never meet in a slot if they do not within the pattern (Qi et al., "Pipeline
/// Parallelism with Controllable Memory", 2024). An activation lives for as long as the pattern
/// says, so lifespans decide what a stage holds.
struct BuildingBlock {
  static constexpr int interval = 6;  ///< a forward and both halves of a backward, of two chunks
  static constexpr int passes = 4;    ///< forward down and up the V, backward down and up
  using Slots = std::array<int, passes>;
  std::vector<Slots> begins;                       ///< by stage
  Action::Kind backward = Action::backward_input;  ///< `Action::backward` takes two slots

  int stages() const { return int(begins.size()); }
  /// Returns the slots that a pass takes.
  int takes(int pass) const { return pass >= 2 && backward == Action::backward ? 2 : 1; }
};

/// Returns the block whose neighbouring stages begin a pass `steps` slots apart, or more where
/// passes would meet. Before the first of a pass it has `holes`. No stages, if there is no room.
BuildingBlock make_block(int stages, const BuildingBlock::Slots& steps,
                         const BuildingBlock::Slots& holes,
                         Action::Kind backward = Action::backward_input);

/// Returns the lists of all stages: the block once for each micro-batch, squeezed. Slots that stay
/// free take weights; before the first micro-batch is back, and after the last has begun, they take
/// later passes, as far as a stage holds at most `live` activations of a chunk.
std::vector<Actions> repeat(const BuildingBlock& block, int micros, int live);

}  // namespace triax::parallel
