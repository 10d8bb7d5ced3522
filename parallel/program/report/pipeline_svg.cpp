#include "parallel/program/report/pipeline_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "core/check.h"
#include "parallel/program/report/axis.h"
#include "parallel/program/report/chart.h"

namespace triax::parallel::report {
namespace {

constexpr double width = 1100, left = 78, right = 16, line = 22, gap = 5;
constexpr int most_stages = 16;
constexpr const char* classes[] = {"f", "b", "b", "w"};  // by Action::Kind

class Lanes {
 public:
  /// `seconds`: the end of the axis.
  explicit Lanes(const Axis& seconds) : seconds_(seconds) {}

  /// A heading, then a lane for each chunk of each stage.
  void draw(const std::string& heading, const PipelineShape& shape,
            const std::vector<TimedAction>& actions) {
    text(16, foot_ + 16, "", heading);
    top_ = foot_ + 28;
    chunks_ = shape.chunks;
    int stages = std::min(shape.stages, most_stages);
    for (int s = 0; s < stages; ++s) {
      double y = lane(s, 0), height = line * chunks_;
      text(16, y + height / 2 + 4, "", fmt::format("stage {}", s));
      box("idle", at(0), y, at(seconds_.high) - at(0), height);
    }
    for (auto& a : actions)
      if (a.stage < stages) draw(a);
    foot_ = lane(stages, 0) + 12;
  }

  std::string svg() {
    shapes_ += fmt::format(R"(<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>)", at(0),
                           at(seconds_.high), foot_, foot_);
    for (double tick : seconds_.ticks)
      text(at(tick), foot_ + 17, "x", fmt::format("{} ms", short_number(tick * 1e3)));
    return fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="pipeline">{}</svg>)",
                       width, foot_ + 26, shapes_);
  }

 private:
  double at(double time) const { return left + seconds_.at(time) * (width - left - right); }
  double lane(int stage, int chunk) const {
    return top_ + stage * (line * chunks_ + gap) + line * chunk;
  }
  /// Its micro-batch is written in it where there is room. What is narrower than two pixels is
  /// drawn as one of two, if none is there yet: there may be thousands.
  void draw(const TimedAction& a) {
    double x = at(a.begin), wide = at(a.end) - x, y = lane(a.stage, a.action.chunk);
    double& taken = taken_[y];
    if (wide < 2 && x < taken) return;
    taken = x + 2;
    box(classes[a.action.kind], x, y + 1, std::max(wide - 0.8, 1.2), line - 2);
    std::string number = std::to_string(a.action.micro);
    if (wide > 4 + 7 * double(number.size())) text(x + wide / 2, y + line / 2 + 4, "m", number);
  }
  void box(const char* kind, double x, double y, double wide, double height) {
    shapes_ += fmt::format(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}"/>)",
                           kind, x, y, wide, height);
  }
  void text(double x, double y, const char* kind, const std::string& what) {
    shapes_ += fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>)", kind, x, y,
                           escaped(what));
  }

  Axis seconds_;
  std::string shapes_;
  double top_ = 0, foot_ = 0;
  int chunks_ = 1;
  std::map<double, double> taken_;  // up to which x, by lane
};

std::string heading(const std::string& what, double time, double bubble) {
  return fmt::format("{}: {} ms, bubble {:.0f} %", what, short_number(time * 1e3), 100 * bubble);
}

}  // namespace

double bubble(const MeasuredPipeline& measured) {
  std::vector<double> stages(size_t(measured.shape.stages), 0);
  for (auto& a : measured.actions) stages[size_t(a.stage)] += a.end - a.begin;
  return measured.time > 0 ? 1 - *std::ranges::min_element(stages) / measured.time : 0;
}

double bubble(const Timeline& simulated) { return simulated.bubble() / simulated.simulation.time; }

std::string svg_of(const MeasuredPipeline& measured, const std::optional<Timeline>& simulated) {
  double end = std::max(measured.time, simulated ? simulated->simulation.time : 0);
  Axis axis = make_axis(Scale::linear, 0, end, 10);
  axis.high = end;
  std::erase_if(axis.ticks, [&](double tick) { return tick > end; });
  Lanes lanes(axis);
  lanes.draw(
      heading(fmt::format("measured, step {}", measured.step), measured.time, bubble(measured)),
      measured.shape, measured.actions);
  if (simulated)
    lanes.draw(
        heading("simulated, " + simulated->name, simulated->simulation.time, bubble(*simulated)),
        simulated->shape, simulated->simulation.actions);
  return lanes.svg();
}

}  // namespace triax::parallel::report
