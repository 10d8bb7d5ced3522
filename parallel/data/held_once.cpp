#include "triax/parallel/data/held_once.h"

#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/data/buckets/held_model.h"

namespace triax::parallel {
namespace {

/// Returns, say, `stages 0, 3`.
std::string named(const std::vector<int>& stages) {
  if (stages.empty()) return "no stage";
  return fmt::format("stage{} {}", stages.size() > 1 ? "s" : "", join(stages, ", "));
}

}  // namespace

void check_holders(const HeldParameter& p, int last) {
  bool both = p.tied && last > 0;
  std::vector<int> ends{0, last};
  if (both ? p.stages == ends : p.stages.size() == 1) return;
  std::string expected =
      both     ? fmt::format("stages 0 and {}, which have the first layer and the last", last)
      : p.tied ? "one stage: here stage 0 has the first layer and the last"
               : "one stage, or the first and the last if it is tied";
  fail(Exit::config,
       "pipeline: {} ({}) is used on {}; expected {}\n  Place the layers that use it there "
       "(--placement), train with fewer stages (--pp), or declare it {}.",
       p.name, p.tied ? "tied" : "not tied", named(p.stages), expected,
       p.tied ? "not tied if one layer uses it" : "tied if the first and the last layer use it");
}

void check_same_model(const HeldModel& m) {
  if (m.dp.size() == 1 || m.dp.device() == meta_device) return;  // nobody to ask
  std::string text = fmt::format("seed {}", m.options.seed);
  for (auto* p : m.declared)
    text += fmt::format(", {} {}{}", p->name, p->full, p->frozen ? " frozen" : "");
  auto hash = double(crc32c(text.data(), text.size()));
  Tensor tops = from_host(std::vector{hash, -hash}, {2}, cpu).to(m.dp.device());
  m.dp.all_reduce(tops, ReduceOp::max).wait();
  auto v = tops.to_host<double>();
  constexpr size_t shown = 200;
  check_input(v[0] == -v[1], Exit::mismatch,
              "data parallel: ranks have different models or seeds; expected the same\n"
              "  Rank {} has {}{}",
              m.dp.group().members[size_t(m.dp.rank())], text.substr(0, shown),
              text.size() > shown ? " .." : "");
}

void check_held_once(const HeldModel& m, Communicator& pp) {
  if (pp.size() == 1 || pp.device() == meta_device) return;  // nobody to ask
  std::vector<uint8_t> held;
  for (auto* p : m.declared) held.push_back(m.holder(p) != nullptr);
  auto held_by = numbers_of_all(pp, held);  // [stage, parameter]
  for (size_t i = 0; i < m.declared.size(); ++i) {
    std::vector<int> stages;
    for (int s = 0; s < pp.size(); ++s)
      if (held_by[size_t(s) * m.declared.size() + i]) stages.push_back(s);
    const nn::Parameter& p = *m.declared[i];
    check_holders({p.name, p.tied, stages}, m.ends ? pp.size() - 1 : 0);
  }
}

}  // namespace triax::parallel
