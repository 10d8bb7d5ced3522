#include "core/check.h"
#include "parallel/data/data_parallel.h"

namespace triax::parallel {
namespace {

/// `stages 0, 3`.
std::string named(const std::vector<int>& stages) {
  if (stages.empty()) return "no stage";
  return fmt::format("stage{} {}", stages.size() > 1 ? "s" : "", join(stages, ", "));
}

}  // namespace

/// A parameter that two stages hold, and nobody sums, would become two.
void DataParallel::check_held_once(Communicator& pp) const {
  if (pp.size() == 1 || pp.device() == meta_device) return;  // nobody to ask
  std::vector<uint8_t> held;
  for (auto* p : declared_) held.push_back(holder(p) != nullptr);
  auto count = int64_t(held.size());
  Tensor mine = from_host(held, {count}, cpu), all = empty({pp.size(), count}, u8, cpu);
  pp.all_gather(mine, all).wait();
  auto held_by = all.to_host<uint8_t>();  // [stage, parameter]
  for (size_t i = 0; i < declared_.size(); ++i) {
    std::vector<int> stages;
    for (int s = 0; s < pp.size(); ++s)
      if (held_by[size_t(s) * declared_.size() + i]) stages.push_back(s);
    const nn::Parameter& p = *declared_[i];
    bool both = p.tied && groups_.ends;
    bool right = both ? stages == std::vector{0, pp.size() - 1} : stages.size() == 1;
    if (!right)
      fail(Exit::config,
           "data parallel: {} ({}) is held by {}; expected one stage, or the first and the last "
           "if it is tied",
           p.name, p.tied ? "tied" : "not tied", named(stages));
  }
}

}  // namespace triax::parallel
