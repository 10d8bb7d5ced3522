#include "triax/parallel/comm/group.h"

#include <algorithm>
#include <numeric>

#include "triax/core/check.h"
#include "triax/parallel/comm/wait.h"

namespace triax::parallel {

Group Group::world(int ranks, int rank, double time_limit) {
  Group all{.members = std::vector<int>(size_t(ranks)), .rank = rank, .time_limit = time_limit};
  std::iota(all.members.begin(), all.members.end(), 0);
  return all;
}

double Group::default_time_limit() { return seconds_from("TRIAX_TIMEOUT"); }

std::string Group::str() const { return fmt::format("{} {{{}}}", name, join(members, ", ")); }

Error disagreement(const Group& group, int64_t number, const Called& a, const Called& b) {
  auto [x, y] = std::minmax(a, b, [](auto& l, auto& r) { return l.rank < r.rank; });
  std::string text = fmt::format("ranks disagree, group {}", group.str());
  text += number ? fmt::format(", call {}\n", number) : "\n";
  for (const Called* c : {&x, &y})
    text += fmt::format("  rank {}: {}\n", group.members[size_t(c->rank)], located(c->call));
  if (number > 1) text += fmt::format("  Last call that matched: {}. ", number - 1);
  else text += "  ";
  return Error(Exit::mismatch, text + "No data of this call was used.", str(a.call.place));
}

Error no_progress(const Group& group, const Call& call, const std::vector<int>& missing) {
  auto ranks = transformed(missing, [&](int r) { return group.members[size_t(r)]; });
  return Error(Exit::peer_lost,
               fmt::format("{}: no progress in group {} for {} s; waiting for rank {}\n  called at "
                           "{}",
                           describe(call), group.str(), group.time_limit, join(ranks, ", "),
                           str(call.place)),
               str(call.place));
}

}  // namespace triax::parallel
