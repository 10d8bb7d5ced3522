#include "examples/schedule/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "examples/schedule/svg.h"
#include "parallel/pipeline/check_schedule.h"

namespace triax::schedule {
namespace {

using parallel::Action;
using parallel::TimedAction;

struct Kind {
  char letter;
  const char* what;
  const char *light, *dark;  ///< from the first chunk to the last
};
constexpr Kind kinds[] = {{'F', "forward", "#a9d2ff", "#4b93e0"},
                          {'B', "backward", "#a8e0b4", "#4fae68"},
                          {'I', "backward of the input", "#a8e0b4", "#4fae68"},
                          {'W', "backward of the weights", "#ffe0a3", "#e3a93c"}};
constexpr const char* idle_color = "#eef0f2";
constexpr const char* grey = "#57606a";

std::string color(const Timeline& t, const Action& a) {
  double share = t.shape.chunks > 1 ? double(a.chunk) / (t.shape.chunks - 1) : 0;
  return blend(kinds[a.kind].light, kinds[a.kind].dark, share);
}

std::vector<Action::Kind> kinds_in(const Timeline& t) {
  std::vector<Action::Kind> present;
  for (const TimedAction& a : t.simulation.actions)
    if (std::find(present.begin(), present.end(), a.action.kind) == present.end())
      present.push_back(a.action.kind);
  std::sort(present.begin(), present.end());
  return present;
}

std::string what(const Timeline& t) {
  auto [stages, chunks, micros] = t.shape;
  std::string text = fmt::format("{} stage{}", stages, stages == 1 ? "" : "s");
  if (chunks > 1) text += fmt::format(" of {} chunks", chunks);
  return text + fmt::format(", {} micro-batch{}", micros, micros == 1 ? "" : "es");
}

std::string sums(const Timeline& t) {
  double time = t.simulation.time;
  return fmt::format("bubble {:g} of {:g} ({:.0f}%)", t.bubble(), time, 100 * t.bubble() / time);
}

/// What colours and numbers mean: a row of boxes and a line of text.
void draw_legend(Svg& svg, const Timeline& t, Point at) {
  double left = at.x;
  auto entry = [&](const std::string& word, const std::vector<std::string>& colors) {
    for (const std::string& color : colors) {
      svg.box({at.x, at.y - 10, 14, 12}, {.fill = color, .round = 2});
      at.x += 15;
    }
    svg.text({at.x + 5, at.y}, word);
    at.x += 28 + 6.6 * double(word.size());
  };
  for (Action::Kind kind : kinds_in(t)) {
    std::vector<std::string> colors;
    for (int c = 0; c < t.shape.chunks; ++c) colors.push_back(color(t, {kind, c, 0}));
    entry(kinds[kind].what, colors);
  }
  entry("idle", {idle_color});
  const char* darker = t.shape.chunks > 1 ? "darker: later chunk; " : "";
  svg.text(
      {left, at.y + 22},
      fmt::format("{}number: micro-batch; live: most activations held at once; time: 1 for the "
                  "forward through a stage",
                  darker),
      {.size = 11, .color = grey});
}

}  // namespace

Timeline make_timeline(const std::string& name, const parallel::PipelineShape& shape) {
  parallel::Schedule schedule = parallel::schedule_named(name);
  auto facts = parallel::check_schedule(schedule, shape);
  double each = 1.0 / shape.chunks;
  auto simulation =
      simulate(lists_of(schedule, shape), shape,
               {.durations = {.forward = each, .backward_input = each, .backward_weight = each}});
  return {name, shape, std::move(simulation), std::move(facts.peak_live)};
}

std::string as_text(const Timeline& t) {
  auto units = [&](double time) { return size_t(std::lround(time * t.shape.chunks)); };
  size_t width = 2 + std::to_string(t.shape.micros - 1).size() + (t.shape.chunks > 1);
  size_t length = width * units(t.simulation.time);
  std::string idle(width, ' ');
  idle[0] = '.';

  std::vector<std::string> rows(size_t(t.shape.stages));
  for (std::string& row : rows)
    while (row.size() < length) row += idle;
  for (const auto& [stage, action, begin, end] : t.simulation.actions) {
    std::string label = fmt::format("{}{}", kinds[action.kind].letter, action.micro);
    if (t.shape.chunks > 1) label += char('a' + action.chunk);
    size_t at = width * units(begin), until = width * units(end);
    if (until - at > width) label.resize(until - at - 1, '-');
    label.resize(until - at, ' ');
    rows[size_t(stage)].replace(at, label.size(), label);
  }

  std::string text = fmt::format("{}: {}\n\n", t.name, what(t));
  for (size_t s = 0; s < rows.size(); ++s)
    text += fmt::format("stage {:<3} {} live at most {}\n", s, rows[s], t.peak_live[s]);
  text += fmt::format("\n{}; live: activations of micro-batches{}\n", sums(t),
                      t.shape.chunks > 1 ? " in one chunk" : "");
  for (Action::Kind kind : kinds_in(t))
    text += fmt::format("{} {}, ", kinds[kind].letter, kinds[kind].what);
  return text + ". idle\n";
}

std::string as_svg(const Timeline& t) {
  constexpr double scale = 28, left = 74, top = 62, high = 30, step = 36;
  Svg svg;
  double right = left + scale * t.simulation.time;
  double column = std::max(right, 420.) + 12;  // of the live activations, beside the second line
  svg.text({16, 26}, t.name, {.size = 16, .bold = true});
  svg.text({16, 46}, what(t) + "; " + sums(t), {.color = grey});
  svg.text({column, 46}, "live", {.color = grey});
  for (int s = 0; s < t.shape.stages; ++s) {
    double y = top + step * s;
    svg.text({16, y + 20}, fmt::format("stage {}", s));
    svg.box({left, y, right - left, high}, {.fill = idle_color});
    svg.text({column, y + 20}, std::to_string(t.peak_live[size_t(s)]), {.bold = true});
  }
  for (const auto& [stage, action, begin, end] : t.simulation.actions) {
    double x = left + scale * begin, y = top + step * stage, wide = scale * (end - begin);
    svg.box({x + 0.5, y, wide - 1, high}, {.fill = color(t, action), .round = 2});
    std::string number = std::to_string(action.micro);
    double size = std::min(12., (wide - 4) / (0.6 * double(number.size())));  // what fits
    if (size >= 6) svg.text({x + wide / 2, y + 20}, number, {.size = size, .anchor = "middle"});
  }
  double foot = top + step * t.shape.stages;
  svg.arrow({left, foot + 8}, {right, foot + 8}, "#8c959f");
  svg.text({right + 12, foot + 12}, "time", {.color = grey});
  draw_legend(svg, t, {left, foot + 36});
  return svg.str(std::max(right + 56, 740.), foot + 74);
}

}  // namespace triax::schedule
