#include "parallel/program/report/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "parallel/settings/setting.h"

namespace triax::parallel::report {
namespace {

constexpr double left = 58, right = 16, top = 10, bottom = 26;  // what the axes take

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  double positive = low;  // the lowest above 0
  void add(double x) {
    if (!std::isfinite(x)) return;
    low = std::min(low, x), high = std::max(high, x);
    if (x > 0) positive = std::min(positive, x);
  }
  bool empty() const { return low > high; }
};

Axis values_axis(const Chart& chart, const Extent& values) {
  bool spread = !chart.from_zero && values.low > 0 && values.high / values.low > 50;
  Scale scale = chart.scale.value_or(spread ? Scale::decades : Scale::linear);
  if (scale == Scale::linear)
    return make_axis(scale, chart.from_zero ? std::min(0., values.low) : values.low, values.high);
  if (values.positive > values.high) return make_axis(Scale::linear, values.low, values.high);
  return make_axis(scale, values.positive, values.high);
}

/// A chart while it is drawn.
class Plot {
 public:
  Plot(const Chart& chart, Axis x, Axis y) : chart_(chart), x_(std::move(x)), y_(std::move(y)) {}

  std::string svg() {
    axes();
    for (auto& line : chart_.lines) draw(line);
    for (auto& [run, steps] : chart_.skipped) marks(run, *steps);
    double foot = chart_.height - bottom;
    return fmt::format(
        R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}" data-x="{} {} {} {}">)"
        "\n{}"
        R"(<line class="cursor" x1="0" x2="0" y1="{}" y2="{}"/></svg>)",
        chart_.width, chart_.height, escaped(chart_.title), x_.low, x_.high, left,
        chart_.width - right, text_, top, foot);
  }

 private:
  double across(double step) const { return left + x_.at(step) * (chart_.width - left - right); }
  double down(double value) const {
    return top + (1 - y_.at(value)) * (chart_.height - top - bottom);
  }
  bool shown(double value) const {
    return std::isfinite(value) && (y_.scale == Scale::linear || value > 0);
  }

  void axes() {
    double end = chart_.width - right, foot = chart_.height - bottom;
    for (double tick : y_.ticks) {
      double y = down(tick);
      text_ += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", left,
                           end, y, y);
      text_ += fmt::format(R"(<text class="y" x="{}" y="{:.1f}">{}</text>)", left - 7, y + 4,
                           y_.label(tick));
    }
    text_ += fmt::format(R"(<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>)", left, end, foot,
                         foot);
    for (double tick : x_.ticks)
      text_ += fmt::format(R"(<text class="x" x="{:.1f}" y="{}">{}</text>)", across(tick),
                           foot + 17, x_.label(tick));
    text_ += "\n";
  }

  /// The points as a curve that breaks off where there is no value.
  std::string curve(const Points& points) const {
    std::string text;
    bool pen_down = false;
    for (size_t i = 0; i < points.size(); ++i) {
      bool there = shown(points.values[i]);
      if (there)
        text += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", across(points.steps[i]),
                            down(points.values[i]));
      bool alone = there && !pen_down && (i + 1 == points.size() || !shown(points.values[i + 1]));
      if (alone) text += "h0";  // a dot
      pen_down = there;
    }
    return text;
  }

  static std::string numbers(const Points& points) {
    std::string text;
    for (size_t i = 0; i < points.size(); ++i)
      if (std::isfinite(points.values[i]))
        text += fmt::format("{}{:.15g} {:.6g}", text.empty() ? "" : " ", points.steps[i],
                            points.values[i]);
    return text;
  }

  void draw(const Line& line) {
    Points kept = thinned(*line.points, x_.low, x_.high, chart_.columns);
    bool dots = line.look == Line::Look::points;
    bool means = !dots && chart_.means && line.points->size() >= mean_from;
    text_ += fmt::format(R"(<path class="r{}{}" d="{}" data-n="{}" data-p="{}"/>)", line.run,
                         dots    ? " held"
                         : means ? " pale"
                                 : "",
                         curve(kept), escaped(line.name), numbers(kept));
    if (means) {
      size_t window = line.points->size() / 60;
      text_ += fmt::format(R"(<path class="r{}" d="{}"/>)", line.run,
                           curve(running_mean(*line.points, window, 240)));
    }
    for (size_t i = 0; dots && i < kept.size() && kept.size() <= 60; ++i)
      if (shown(kept.values[i]))
        text_ += fmt::format(R"(<circle class="r{}" cx="{:.1f}" cy="{:.1f}" r="3"/>)", line.run,
                             across(kept.steps[i]), down(kept.values[i]));
    text_ += "\n";
  }

  /// Triangles on the lower axis, one for each pixel at most.
  void marks(size_t run, const Points& steps) {
    double foot = chart_.height - bottom, last = -1;
    std::string path;
    for (double step : steps.steps) {
      double x = across(step);
      if (x - last < 1) continue;
      path += fmt::format("M{:.1f} {}l-4 8h8z", x, foot - 8);
      last = x;
    }
    if (!path.empty())
      text_ += fmt::format(R"(<path class="skipped r{}" d="{}"/>)"
                           "\n",
                           run, path);
  }

  const Chart& chart_;
  Axis x_, y_;
  std::string text_;
};

}  // namespace

std::string svg_of(const Chart& chart) {
  Extent steps, values;
  if (chart.steps) steps.add(chart.steps->first), steps.add(chart.steps->second);
  for (auto& line : chart.lines) {
    for (double step : line.points->steps) steps.add(step);
    for (double value : line.points->values) values.add(value);
  }
  if (values.empty()) return "";
  int count = int(chart.width / 80);
  return Plot(chart, step_axis(steps.low, steps.high, count), values_axis(chart, values)).svg();
}

std::string escaped(const std::string& text) {
  bool plain = is_plain_text(text);
  std::string safe;
  for (char c : text) {
    bool odd = (c >= 0 && c < ' ') || c == 127 || (c < 0 && !plain);
    if (odd) safe += '?';
    else if (c == '<') safe += "&lt;";
    else if (c == '>') safe += "&gt;";
    else if (c == '&') safe += "&amp;";
    else if (c == '"') safe += "&quot;";
    else safe += c;
  }
  return safe;
}

}  // namespace triax::parallel::report
