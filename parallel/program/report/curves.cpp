#include "parallel/program/report/curves.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "parallel/program/report/chart.h"

namespace triax::parallel::report {
namespace {

using Runs = std::vector<RunFacts>;

/// The charts of a page, which share what its size allows.
class Charts {
 public:
  explicit Charts(const Runs& runs) : runs_(runs) {
    for (auto& run : runs) {
      auto& own = run.column("loss").steps;  // which every step has
      steps_ = {std::min(steps_.first, own.front()), std::max(steps_.second, own.back())};
    }
  }

  void loss() {
    Chart chart{.title = "Loss", .unit = loss_unit(), .means = true, .width = 1110, .height = 340};
    add(chart, "loss");
    for (size_t i = 0; i < runs_.size(); ++i)
      if (const Points& held = runs_[i].column("val_loss"); held.size() > 0)
        chart.lines.push_back({i, runs_[i].name + ", validation", &held, Line::Look::points});
    charts_.push_back(std::move(chart));
  }
  void one(Chart chart, const std::string& key) {
    add(chart, key);
    if (!chart.lines.empty()) charts_.push_back(std::move(chart));
  }
  void loss_scale() {
    Chart chart{
        .title = "Loss scale", .unit = "triangles: skipped steps", .scale = Scale::doublings};
    for (size_t i = 0; i < runs_.size(); ++i) {
      const Points& scales = runs_[i].column("loss_scale");
      if (std::ranges::all_of(scales.values, [](double x) { return x == 1; })) continue;
      chart.lines.push_back({i, runs_[i].name, &scales});
      chart.skipped.push_back({i, &runs_[i].skipped});
    }
    if (!chart.lines.empty()) charts_.push_back(std::move(chart));
  }
  /// What a program measured of held-out data, such as `val_top1`.
  void scores() {
    std::set<std::string> keys;
    for (auto& run : runs_)
      for (auto& [key, points] : run.columns)
        if (key.starts_with("val_") && key != "val_loss") keys.insert(key);
    for (auto& key : keys) {
      Chart chart{.title = key, .unit = "of held-out data"};
      add(chart, key, Line::Look::points);
      charts_.push_back(std::move(chart));
    }
  }

  std::string text() {
    constexpr size_t points = 15000;  // of a page: about 30 bytes each, and twice
    size_t lines = 0;
    for (auto& chart : charts_) lines += chart.lines.size();
    std::string all;
    for (auto& chart : charts_) {
      bool wide = chart.width > 600;
      chart.steps = steps_;
      chart.columns = int(std::clamp<size_t>(points / lines, 60, wide ? 1000 : 480));
      std::string svg = svg_of(chart);
      if (svg.empty()) continue;
      all += fmt::format(
          "<figure{}><h3>{} <small>{}</small></h3>{}<div class=\"values\"></div>"
          "</figure>\n",
          wide ? " class=\"wide\"" : "", escaped(chart.title), escaped(chart.unit),
          wide ? "<div class=\"scroll\">" + svg + "</div>" : svg);
    }
    return "<div class=\"charts\">\n" + all + "</div>\n";
  }

 private:
  std::string loss_unit() const {
    size_t most = 0;
    bool held = false;
    for (auto& run : runs_) {
      most = std::max(most, run.column("loss").size());
      held |= run.column("val_loss").size() > 0;
    }
    std::string unit = runs_[0].unit;
    if (unit.ends_with("s")) unit.pop_back();
    std::string text = fmt::format("per {}, by step", unit);
    if (most >= mean_from) text += "; pale: every step, strong: mean over a sixtieth of the steps";
    if (held) text += "; dotted: validation";
    return text;
  }
  void add(Chart& chart, const std::string& key, Line::Look look = Line::Look::line) {
    for (size_t i = 0; i < runs_.size(); ++i)
      if (const Points& points = runs_[i].column(key); points.size() > 0)
        chart.lines.push_back({i, runs_[i].name, &points, look});
  }

  const Runs& runs_;
  std::pair<double, double> steps_ = {INFINITY, 0};
  std::vector<Chart> charts_;
};

}  // namespace

std::string curves(const std::vector<RunFacts>& runs) {
  Charts charts(runs);
  charts.loss();
  charts.scores();
  charts.one({.title = "Gradient norm", .unit = "before clipping", .means = true}, "grad_norm");
  charts.one({.title = "Learning rate", .from_zero = true}, "lr");
  charts.loss_scale();
  charts.one({.title = "Throughput",
              .unit = runs[0].unit + " per second",
              .from_zero = true,
              .means = true},
             runs[0].unit + "_per_second");
  charts.one(
      {.title = "Memory", .unit = "peak tensor bytes so far, largest rank", .from_zero = true},
      "memory_bytes");
  return charts.text();
}

}  // namespace triax::parallel::report
