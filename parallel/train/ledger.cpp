#include "parallel/train/ledger.h"

#include "core/check.h"
#include "core/memory.h"
#include "parallel/comm/together.h"

namespace triax::parallel {
namespace {

/// `  dp     all_reduce    1.0 calls   217856 bytes` for each collective that was called.
std::string lines(const std::string& group, const Ledger& ledger, int64_t steps) {
  std::string text;
  for (int k = 0; k < Call::kinds; ++k) {
    auto kind = Call::Kind(k);
    const auto& line = ledger[kind];
    if (line.calls == 0 || kind == Call::split) continue;
    text += fmt::format("  {:<12} {:<14} {:>6.1f} calls {:>11.0f} bytes\n", group, name(kind),
                        double(line.calls) / double(steps), line.bytes / double(steps));
  }
  return text;
}

std::string memory_line() {
  const auto& counter = *memory::counter();
  std::string peak = fmt::format("  peak {:.2f} MB:", double(counter.peak()) / 1e6);
  std::string live = fmt::format("  live {:.2f} MB:", double(counter.live()) / 1e6);
  for (int k = 0; k < memory::kinds; ++k) {
    auto kind = memory::Kind(k);
    if (counter.peak(kind) == 0) continue;
    peak += fmt::format(" {} {:.2f}", memory::name(kind), double(counter.peak(kind)) / 1e6);
    live += fmt::format(" {} {:.2f}", memory::name(kind), double(counter.live(kind)) / 1e6);
  }
  return peak + "\n" + live + "\n";
}

}  // namespace

std::string describe_ledger(const Mesh& mesh, const Pipeline& pipeline, int64_t steps) {
  std::string mine;
  steps = std::max<int64_t>(1, steps);
  for (auto* group : {&mesh.dp(), &mesh.tp(), &mesh.ends(), &mesh.world()})
    if (group->size() > 1) mine += lines(group->group().name, group->ledger(), steps);
  for (auto* link : pipeline.links()) mine += lines(link->group().name, link->ledger(), steps);
  auto all = gather_text(mesh.world(), mine + memory_line());
  std::string text = "a step of one rank of each stage (bytes: those a ring would send)\n";
  for (int stage = 0; stage < mesh.shape().pp && mesh.world().rank() == 0; ++stage) {
    int rank = rank_of(mesh.shape(), {.pp = stage});
    text += fmt::format("stage {}, rank {}\n{}", stage, rank, all[size_t(rank)]);
  }
  return text;
}

}  // namespace triax::parallel
