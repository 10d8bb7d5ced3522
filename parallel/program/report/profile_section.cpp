#include "parallel/program/report/profile_section.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/check.h"
#include "parallel/program/report/chart.h"
#include "parallel/program/report/overlay.h"
#include "parallel/program/report/pipeline_svg.h"

namespace triax::parallel::report {
namespace {

constexpr size_t most_ranks = 64;  // that get a line

std::string key(const std::string& kind, const std::string& meaning) {
  return fmt::format(
      R"(<span><svg viewBox="0 0 13 12"><rect class="{}" width="13" height="12"/></svg>{}</span>)",
      kind, escaped(meaning));
}

/// The three one after the other, to the scale of `longest` seconds.
std::string bar(const RankTime& r, double longest) {
  std::string boxes;
  double x = 0;
  for (auto [kind, seconds] :
       {std::pair{"f", r.busy}, {"w", r.communicating}, {"idle", r.waiting}}) {
    double wide = 340 * seconds / longest;
    boxes +=
        fmt::format(R"(<rect class="{}" x="{:.1f}" width="{:.1f}" height="13"/>)", kind, x, wide);
    x += wide;
  }
  return "<svg class=\"bar\" viewBox=\"0 0 340 13\" preserveAspectRatio=\"none\">" + boxes +
         "</svg>";
}

std::string rank_table(const Trace& trace) {
  double longest = 0;
  for (auto& r : trace.ranks) longest = std::max(longest, r.busy + r.communicating + r.waiting);
  std::string rows;
  for (size_t i = 0; i < std::min(trace.ranks.size(), most_ranks); ++i) {
    const RankTime& r = trace.ranks[i];
    rows += fmt::format(
        "<tr><th scope=\"row\">rank {} (dp {}, pp {}, tp {})</th><td class=\"n\">{:.3f}</td>"
        "<td class=\"n\">{:.3f}</td><td class=\"n\">{:.3f}</td><td>{}</td></tr>\n",
        r.rank, r.dp, r.pp, r.tp, r.busy, r.communicating, r.waiting, bar(r, longest));
  }
  std::string more;
  if (trace.ranks.size() > most_ranks)
    more = fmt::format("<p>and {} more ranks</p>\n", trace.ranks.size() - most_ranks);
  return fmt::format(
             "<div class=\"scroll\"><table class=\"ranks\"><thead><tr><th>seconds</th>"
             "<th class=\"n\" scope=\"col\">busy</th>"
             "<th class=\"n\" scope=\"col\">communicating</th>"
             "<th class=\"n\" scope=\"col\">waiting</th><td></td></tr></thead>\n"
             "<tbody>{}</tbody></table></div>\n",
             rows) +
         more + "<p class=\"key\">" + key("f", "busy") + key("w", "communicating") +
         key("idle", "waiting") + "</p>\n";
}

/// Nothing for a trace that lacks some actions.
std::optional<Timeline> simulation_of(const Trace& trace) try {
  return simulated(*trace.pipeline, trace.schedule);
} catch (const Error&) {
  return {};
}

std::string pipeline(const Trace& trace) {
  const MeasuredPipeline& measured = *trace.pipeline;
  std::optional<Timeline> expected = simulation_of(trace);
  std::string text = fmt::format(
      "<figure><h3>Pipeline <small>replica 0, tensor-parallel rank 0"
      "</small></h3><div class=\"scroll\">{}</div></figure>\n",
      svg_of(measured, expected));
  text += "<p class=\"key\">" + key("f", "forward") + key("b", "backward, or of the input") +
          key("w", "backward of the weights") + key("idle", "idle") +
          "<span>number: micro-batch</span></p>\n<p><small>An action begins when it has received "
          "what it needs. The bubble is the share of its time that the stage which idles longest "
          "does not work. ";
  text += expected ? "Simulated: every action takes the time that was measured, and every link the "
                     "least latency that a handover showed."
                   : "Not simulated: these actions are no whole schedule.";
  return text + "</small></p>\n";
}

}  // namespace

std::string profile_section(const RunFacts& run) {
  const Trace& trace = *run.trace;
  std::string text = fmt::format("<h2>Profile of {}, steps {} to {}</h2>\n", escaped(run.name),
                                 trace.first, trace.last);
  text += rank_table(trace);
  return trace.pipeline ? text + pipeline(trace) : text;
}

}  // namespace triax::parallel::report
