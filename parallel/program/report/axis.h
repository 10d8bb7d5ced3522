#pragma once
#include <string>
#include <vector>

namespace triax::parallel::report {

enum class Scale { linear, decades, doublings };

/// A range of values that is drawn from one end of an axis to the other, and the round values that
/// are written at it, ascending.
struct Axis {
  Scale scale = Scale::linear;
  double low = 0, high = 1;
  std::vector<double> ticks = {};

  /// Where a value lies: 0 at `low`, 1 at `high`.
  double at(double value) const;
  /// What is written at a tick: `0.002`, `12k`, on an axis of doublings a power of two.
  std::string label(double tick) const;
};

/// From a tick at or below `low` to one at or above `high`, both finite; about `count` ticks.
/// Logarithmic ones need `low` > 0.
Axis make_axis(Scale scale, double low, double high, int count = 5);

/// Linear from `low` to `high`, with ticks in between that are whole numbers.
Axis step_axis(double low, double high, int count = 8);

/// Up to four digits: `0.002`, `12k`, `3.5M`.
std::string short_number(double x);

}  // namespace triax::parallel::report
