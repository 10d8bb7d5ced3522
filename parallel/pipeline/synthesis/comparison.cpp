#include "parallel/pipeline/synthesis/comparison.h"

#include <algorithm>

#include "core/check.h"
#include "core/io/json.h"

namespace triax::parallel {
namespace {

constexpr const char* found_name = "found";

/// Returns `3`, or `1 to 8` where stages differ.
std::string caps(const std::vector<double>& cap) {
  auto [least, most] = std::ranges::minmax(cap);
  return least == most ? fmt::format("{:g}", most) : fmt::format("{:g} to {:g}", least, most);
}

std::string table_row(const Comparison::Row& r, const Budget& budget) {
  std::vector<std::string> peak;
  for (double x : r.peak) peak.push_back(fmt::format("{:.4g}", x));
  return fmt::format("{:<16} {:>10.6g} {:>7.2f}%  {}{}\n", r.name, r.cost, 100 * r.bubble,
                     join(peak, " "), within(budget, r.peak) ? "" : ", too many");
}

std::string verdict(const Comparison& c) {
  const Comparison::Row& found = c.rows.back();
  if (!meets(found.cost, c.found.bound))
    return fmt::format("found: {:.3g}% above the bound\n", 100 * (found.cost / c.found.bound - 1));
  std::string text = "found: optimal, as cheap as the bound\n";
  for (const Comparison::Row& r : c.rows)
    if (&r != &found && r.chunks == found.chunks && r.placement == found.placement &&
        meets(r.cost, found.cost) && within(c.found.budget, r.peak))
      text += fmt::format("{} is optimal\n", r.name);
  return text;
}

}  // namespace

double Comparison::best_bubble() const {
  return 1 - busiest(found.shape, found.times) / found.bound;
}

Comparison::Row row_of(const std::string& name, const ScheduleFile& s) {
  return {name,
          s.shape.chunks,
          s.shape.placement,
          s.cost,
          1 - busiest(s.shape, s.times) / s.cost,
          peak_memory(s.lists, s.shape, s.budget.hold)};
}

ScheduleFile beside(const ScheduleFile& found, const Schedule& schedule, const TimesOf& times) {
  ScheduleFile s = found;
  s.shape.chunks = schedule.chunks;
  s.shape.placement = schedule.placement;
  s.lists.clear();
  s.times = times(s.shape);
  if (!s.times.empty()) s.lists = lists_that_fit(schedule, s.shape);
  if (s.lists.empty()) return s;
  s.cost = cost_of(simulate(s.lists, s.shape, s.times), s.budget.objective);
  s.bound = lower_bound(s.shape, s.times, s.budget);
  return s;
}

Comparison compare(const std::map<std::string, Schedule>& schedules, const ScheduleFile& found,
                   const TimesOf& times) {
  Comparison c{{}, found};
  for (auto& [name, schedule] : schedules) {
    ScheduleFile s = beside(found, schedule, times);
    if (!s.lists.empty()) c.rows.push_back(row_of(name, s));
  }
  c.rows.push_back(row_of(found_name, found));
  return c;
}

std::string comparison_text(const Comparison& c) {
  const ScheduleFile& f = c.found;
  std::string text = fmt::format(
      "{} stages, {} micro-batches; a stage may hold {} activations; one counts {:g} from the "
      "input's backward to the weights'\ncost: {}\n\n{:<16} {:>10} {:>8}  activations held, stage "
      "by stage\n",
      f.shape.stages, f.shape.micros, caps(f.budget.cap), f.budget.hold,
      f.budget.objective == Budget::makespan
          ? "makespan, to the end of the last stage"
          : "span, the longest stage from its first begin to its last end",
      "schedule", "cost", "bubble");
  for (const Comparison::Row& r : c.rows) text += table_row(r, f.budget);
  text += fmt::format(
      "{:<16} {:>10.6g} {:>7.2f}%  no schedule of {} chunk{} a stage{} costs less in this memory\n",
      "bound", f.bound, 100 * c.best_bubble(), f.shape.chunks, f.shape.chunks == 1 ? "" : "s",
      f.shape.placement == Placement::v ? " in a V" : "");
  return text + verdict(c);
}

std::string comparison_json(const Comparison& c) {
  std::vector<std::string> rows;
  for (const Comparison::Row& r : c.rows)
    rows.push_back(fmt::format(R"({{"name":{},"chunks":{},"cost":{},"bubble":{},"peak":[{}]}})",
                               nn::quoted(r.name), r.chunks, r.cost, r.bubble, join(r.peak, ",")));
  const ScheduleFile& f = c.found;
  return fmt::format(
      R"({{"stages":{},"micros":{},"hold":{},"objective":"{}","cap":[{}],"cost":{},"bound":{},)"
      R"("best_bubble":{},"rows":[{}]}})",
      f.shape.stages, f.shape.micros, f.budget.hold, name(f.budget.objective),
      join(f.budget.cap, ","), f.cost, f.bound, c.best_bubble(), join(rows, ","));
}

}  // namespace triax::parallel
