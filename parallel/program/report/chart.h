#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/program/report/axis.h"
#include "parallel/program/report/series.h"

namespace triax::parallel::report {

/// One line of a chart.
struct Line {
  size_t run = 0;    ///< which decides its color
  std::string name;  ///< beside its values, when a reader points at them
  const Points* points = nullptr;
  enum class Look {
    line,   ///< what is measured in every step
    points  ///< what is measured now and then
  } look = Look::line;
};

/// Lines of so many points get a line of means.
inline constexpr size_t mean_from = 120;

/// What is drawn over the steps of one or several runs.
struct Chart {
  std::string title, unit;
  /// Not given: of decades if values above 0 differ by more than a factor of 50, else linear.
  std::optional<Scale> scale = {};
  bool from_zero = false;  ///< a linear axis that begins there
  bool means = false;      ///< lines of many steps are noise: their means are drawn over them
  /// First and last step of the axis, where other charts have more than the lines of this one.
  std::optional<std::pair<double, double>> steps = {};
  std::vector<Line> lines = {};
  std::vector<std::pair<size_t, const Points*>> skipped = {};  ///< runs, and steps to be marked
  double width = 540, height = 250;
  int columns = 400;  ///< parts of a line of which no more than highest and lowest are kept
};

/// The chart as an SVG element. Its curves carry what they show: `data-p` is `STEP VALUE STEP
/// VALUE ...`, six digits of each value, `data-n` the name. Empty if no line has a value.
std::string svg_of(const Chart& chart);

/// Text for HTML and SVG: `<` and such escaped, what is no UTF-8 or a control character as `?`.
std::string escaped(const std::string& text);

}  // namespace triax::parallel::report
