#include "parallel/train/options/step_range.h"

#include <charconv>

#include "core/check.h"
#include "core/io/files.h"

namespace triax::parallel {

StepRange parse_step_range(const std::string& text) {
  StepRange r;
  const char *at = text.data(), *end = at + text.size();
  auto first = std::from_chars(at, end, r.first), last = first;
  r.last = r.first;
  if (first.ptr != end && *first.ptr == '-') last = std::from_chars(first.ptr + 1, end, r.last);
  check_input(first.ec == std::errc() && last.ec == std::errc() && last.ptr == end &&
                  r.first >= 1 && r.first <= r.last,
              Exit::config,
              "profile `{}`; expected a step or the first and the last of several, like "
              "3 or 3-5",
              printable(text));
  return r;
}

void check_profile(const TrainOptions& o) {
  if (o.profile.empty()) return;
  check_input(!o.step.graph, Exit::config,
              "profile with graph\n  A replayed step is one launch, without layers or operations. "
              "Leave --profile or --graph out.");
  check_input(parse_step_range(o.profile).last <= o.steps, Exit::config,
              "profile={} with steps={}\n  The run ends before. Valid: steps from 1 to {}.",
              o.profile, o.steps, o.steps);
}

}  // namespace triax::parallel
