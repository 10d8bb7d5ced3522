// A part of a search: patterns that repeat, two chunks a stage in a V.
#include <algorithm>

#include "triax/parallel/pipeline/building_block.h"
#include "triax/parallel/pipeline/synthesis/search.h"

namespace triax::parallel::synthesis {
namespace {

struct Candidate {
  BuildingBlock block;
  int unused = 0;  ///< activations of a chunk that a stage could hold beside
};

/// Returns about how many activations of a chunk a stage holds while the block repeats.
int live(const BuildingBlock& block) {
  int longest = 0;  // of both chunks; weights follow within some slots
  for (const auto& [down, up, back_down, back_up] : block.begins)
    longest = std::max(longest, back_down - up + back_up - down);
  return (longest + 4) / BuildingBlock::interval;
}

/// Returns the blocks of stages up to `most` slots apart that need little less than `cap`.
std::vector<Candidate> candidates(int stages, int cap) {
  constexpr int most = 6, all_holes = 54;
  std::vector<Candidate> all;
  for (int n = 0; n < most * most * most * most * all_holes; ++n) {
    int holes = n % all_holes, left = n / all_holes, sum = 0;
    BuildingBlock::Slots steps;
    for (int& step : steps) step = 1 + left % most, left /= most, sum += step;
    int need = stages * sum / BuildingBlock::interval;
    if (need > cap || need < cap / 2 - most) continue;
    auto block = make_block(stages, steps, {0, holes % 3, holes / 3 % most, holes / 3 / most});
    if (block.begins.empty()) continue;
    int unused = cap - live(block);
    if (unused >= 0 && unused <= 3) all.push_back({std::move(block), unused});
  }
  std::ranges::stable_sort(all, {}, &Candidate::unused);
  return all;
}

}  // namespace

/// Tries patterns that repeat, as they are and with weights wherever there is time.
void Search::try_blocks() {
  auto cap = int(std::min(1e6, 2 * std::ranges::min(p_.budget.cap) + 1e-9));
  for (const Candidate& c : candidates(p_.shape.stages, cap)) {
    if (over(.7)) return;
    auto lists = repeat(c.block, p_.shape.micros, cap);
    const Policy policy(lists.size());
    consider(policy, cost_, &lists);
    for (Actions& list : lists)
      std::erase_if(list, [](auto& a) { return a.kind == Action::backward_weight; });
    for (double waits : {.9, .5})
      if (!over(1)) consider(Policy(lists.size(), {.weight_waits = waits}), cost_, &lists);
  }
}

}  // namespace triax::parallel::synthesis
