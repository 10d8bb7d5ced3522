#include <algorithm>
#include <map>

#include "triax/core/check.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/train/step/digests.h"
#include "triax/parallel/train/step/step.h"

namespace triax::parallel {
namespace {

/// Returns a digest of each tensor and its part: `block0.up.weight 0 64 0 -1`.
Digests digests_of(const Step& step) {
  Digests rows;
  for (const Piece& piece : step.pieces(Holder::any)) {
    auto held = piece.value.storage()->hold(Access::read);  // it may lie in a file
    const Part& p = piece.part;
    rows.push_back(bits_of(
        fmt::format("{} {} {} {} {}", name_of(piece), p.begin, p.length, p.flat_begin, p.flat_end),
        piece.value));
  }
  return rows;
}

using Holders = std::map<uint32_t, std::vector<size_t>>;  // ranks by checksum

/// Returns `rank 3 differs from ranks 0, 1, 2`; of halves nobody can tell which one is wrong.
std::string describe(const Holders& holders) {
  constexpr size_t most_named = 8;
  auto name = [&](std::vector<size_t> ranks) {
    size_t others = ranks.size() - std::min(ranks.size(), most_named);
    ranks.resize(ranks.size() - others);
    return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", join(ranks, ", "),
                       others > 0 ? fmt::format(" and {} more", others) : "");
  };
  auto size = [](const auto& group) {  // of equal ones the one with the lowest rank counts
    return std::pair(group.second.size(), -int64_t(group.second.front()));
  };
  const auto& most = std::ranges::max_element(holders, {}, size)->second;
  std::vector<size_t> others;
  for (auto& [checksum, ranks] : holders)
    if (&ranks != &most) others.insert(others.end(), ranks.begin(), ranks.end());
  std::ranges::sort(others);
  return fmt::format("{} differ{} from {}", name(others), others.size() == 1 ? "s" : "",
                     name(most));
}

}  // namespace

void check_replicas(const Step& step, Communicator& ranks, int64_t number) {
  std::string mine;
  together(ranks, [&] { mine = to_lines(digests_of(step)); });
  auto told = gather_text(ranks, mine);
  on_first(ranks, [&] {
    std::map<std::string, Holders> all;
    for (size_t rank = 0; rank < told.size(); ++rank)
      for (auto& d : from_lines(told[rank], fmt::format("rank {}", rank)))
        all[d.name][d.crc32c].push_back(rank);
    auto differs = [](const auto& tensor) { return tensor.second.size() > 1; };
    auto first = std::ranges::find_if(all, differs);
    if (first == all.end()) return;
    fail(Exit::mismatch,
         "replicas: after step {} {} in {} ({} of {} tensors differ); expected equal bits\n"
         "  A machine computed or kept a wrong value. Test its memory and processor; --resume auto "
         "goes on from the last checkpoint, whose replicas were equal.",
         number, describe(first->second), first->first.substr(0, first->first.find(' ')),
         std::ranges::count_if(all, differs), all.size());
  });
}

}  // namespace triax::parallel
