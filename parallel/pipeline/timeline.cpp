#include "triax/parallel/pipeline/timeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "triax/core/check.h"
#include "triax/core/io/json.h"
#include "triax/parallel/pipeline/check_schedule.h"

namespace triax::parallel {
namespace {

constexpr const char* meanings[] = {"forward", "backward", "backward of the input",
                                    "backward of the weights"};

constexpr double most_cells = 20'000;  // of a row: the shortest action may be next to nothing

/// The rows of all stages from the first cell to the last, and the width of a cell.
struct Drawing {
  size_t cell = 0;
  double unit = 0;       // time of a cell
  bool complete = true;  // whether every action has a cell
  std::vector<std::string> rows;
};

Drawing draw(const Timeline& t) {
  Drawing g;
  for (const TimedAction& a : t.simulation.actions) {
    if (copies(a.action.kind)) continue;
    g.cell = std::max(g.cell, label(a.action, t.shape.chunks).size() + 1);
    double takes = a.end - a.begin;
    if (takes > 0 && (g.unit == 0 || takes < g.unit)) g.unit = takes;
  }
  double finest = t.simulation.time / most_cells;
  g.complete = g.unit >= finest;
  g.unit = std::max(g.unit, finest);
  auto at = [&](double time) { return g.cell * size_t(std::lround(time / g.unit)); };
  std::string idle = "." + std::string(g.cell - 1, ' '), row;
  while (row.size() < at(t.simulation.time)) row += idle;
  g.rows.assign(size_t(t.shape.stages), row);
  for (const auto& [stage, action, begin, end] : t.simulation.actions) {
    if (copies(action.kind)) continue;  // beside the passes
    std::string text = label(action, t.shape.chunks);
    size_t from = at(begin), length = at(end) - from;
    if (length > g.cell) text.resize(length - 1, '-');
    text.resize(length, ' ');
    g.rows[size_t(stage)].replace(from, length, text);
  }
  return g;
}

}  // namespace

double Timeline::bubble() const { return *std::ranges::max_element(simulation.idle); }

Timeline make_timeline(const std::string& name, const Schedule& schedule,
                       const PipelineShape& shape, const StageTimes& times) {
  Timeline t{.name = name, .shape = shape};
  t.peak_live = check_schedule(schedule, shape);
  t.simulation =
      simulate(lists_of(schedule, shape), shape, times.empty() ? equal_stages(shape, {}) : times);
  for (const TimedAction& a : t.simulation.actions)
    if (auto sent = sent_by(shape, a.stage, a.action)) t.handovers.push_back(*sent);
  return t;
}

std::string timeline_text(const Timeline& t, int columns) {
  std::string chunks = t.shape.chunks > 1 ? " of " + counted(t.shape.chunks, "chunk") : "";
  if (t.shape.placement == Placement::v) chunks += " in a V";
  std::string text =
      fmt::format("{}: {}{}, {} micro-batch{}\n", t.name, counted(t.shape.stages, "stage"), chunks,
                  t.shape.micros, t.shape.micros == 1 ? "" : "es");
  Drawing g = draw(t);
  constexpr size_t margin = 16;  // of `stage 63  live  `
  size_t fits = size_t(std::max(columns, 0));
  size_t wide = std::max<size_t>(1, (std::max(fits, margin) - margin) / g.cell) * g.cell;
  for (size_t at = 0; at < g.rows[0].size(); at += wide) {
    text += fmt::format("\n{:>14}  time {:g}\n", "live", double(at / g.cell) * g.unit);
    for (size_t s = 0; s < g.rows.size(); ++s) {
      std::string row = g.rows[s].substr(at, wide);
      row.erase(row.find_last_not_of(' ') + 1);
      text += fmt::format("stage {:<3}{:>5}  {}\n", s, t.peak_live[s], row);
    }
  }
  double time = t.simulation.time;
  text +=
      fmt::format("\nbubble {:g} of {:g} ({:.0f}%)\n", t.bubble(), time, 100 * t.bubble() / time);
  std::set<Action::Kind> kinds;
  int offloaded = 0;
  for (const TimedAction& a : t.simulation.actions) {
    if (copies(a.action.kind)) offloaded += a.action.kind == Action::offload;
    else kinds.insert(a.action.kind);
  }
  for (Action::Kind kind : kinds)
    text += fmt::format("{} {}, ", label({kind}, 1)[0], meanings[kind]);
  std::string note =
      g.complete ? "" : fmt::format("not drawn: actions much shorter than {:g}\n", g.unit);
  if (offloaded > 0)
    note += fmt::format("not drawn: {} activations go to host memory and come back\n", offloaded);
  return text + fmt::format(". idle\n{}live: most activations{} held at once\n", note,
                            t.shape.chunks > 1 ? ", each of one chunk," : "");
}

std::string timeline_json(const Timeline& t) {
  std::vector<std::string> actions, handovers;
  for (const auto& [stage, a, begin, end] : t.simulation.actions)
    actions.push_back(
        fmt::format(R"({{"stage":{},"kind":"{}","chunk":{},"micro":{},"begin":{},"end":{}}})",
                    stage, name(a.kind), a.chunk, a.micro, begin, end));
  for (const Handover& h : t.handovers)
    handovers.push_back(fmt::format(R"({{"kind":"{}","micro":{},"from":{},"to":{}}})",
                                    h.kind == Handover::activation ? "activation" : "gradient",
                                    h.micro, h.from, h.to));
  return fmt::format(
      R"({{"name":{},"stages":{},"chunks":{},"micros":{},"placement":"{}","time":{},"bubble":{},)"
      R"("idle":[{}],)"
      R"("peak_live":[{}],"actions":[{}],"handovers":[{}]}})",
      nn::quoted(t.name), t.shape.stages, t.shape.chunks, t.shape.micros, name(t.shape.placement),
      t.simulation.time, t.bubble(), join(t.simulation.idle, ","), join(t.peak_live, ","),
      join(actions, ","), join(handovers, ","));
}

}  // namespace triax::parallel
