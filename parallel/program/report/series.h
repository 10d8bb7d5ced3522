#pragma once
#include <string>
#include <vector>

namespace triax::parallel::report {

/// Values by step, ascending; NaN where a step has none.
struct Points {
  std::vector<double> steps = {}, values = {};
  size_t size() const { return steps.size(); }
  void add(double step, double value) {
    steps.push_back(step);
    values.push_back(value);
  }
};

/// At most about two points for each of `columns` equal parts of the steps from `low` to `high`:
/// its lowest and its highest, so that no spike is lost; and the first and the last of all.
Points thinned(const Points& all, double low, double high, int columns);

/// Means over `window` points, at the ends over half as many, at about `count` steps in their
/// middle. NaN is left out.
Points running_mean(const Points& all, size_t window, size_t count);

}  // namespace triax::parallel::report
