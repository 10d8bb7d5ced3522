#include "parallel/program/report/axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace triax::parallel::report {
namespace {

/// 1, 2 or 5 times a power of ten, at least `wanted`.
double round_up(double wanted) {
  double power = std::pow(10, std::floor(std::log10(wanted)));
  for (double digit : {1., 2., 5.})
    if (digit * power >= wanted * (1 - 1e-9)) return digit * power;
  return 10 * power;
}

void end_at_ticks(Axis& axis) {
  axis.low = axis.ticks.front();
  axis.high = axis.ticks.back();
}

Axis linear(double low, double high, int count) {
  double size = std::max(std::abs(low), std::abs(high));
  if (high - low <= 1e-9 * size) {  // equal but for rounding: ticks between them would be equal
    double around = size == 0 ? 1 : size / 2;
    low -= around, high += around;
  }
  double step = round_up((high - low) / count);
  Axis axis{Scale::linear};
  double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) axis.ticks.push_back(i * step);
  end_at_ticks(axis);
  return axis;
}

/// Powers of `base`, every so many of them that about `count` are left.
Axis powers(Scale scale, double base, double low, double high, int count) {
  auto exponent = [&](double x) { return std::log(x) / std::log(base); };
  double first = std::floor(exponent(low) + 1e-9), last = std::ceil(exponent(high) - 1e-9);
  if (first == last) first -= 1, last += 1;
  double every = std::max(1., std::ceil((last - first) / count));
  Axis axis{scale};
  for (double e = first; e < last + every; e += every) axis.ticks.push_back(std::pow(base, e));
  end_at_ticks(axis);
  return axis;
}

/// Of less than two decades: 1, 2, 5, 10, 20 ...
Axis digits(double low, double high) {
  Axis axis{Scale::decades};
  if (high < low * 1.001) low /= 1.5, high *= 1.5;
  double first = std::floor(std::log10(low)), last = std::ceil(std::log10(high));
  for (double e = first; e <= last; ++e)
    for (double digit : {1., 2., 5.}) axis.ticks.push_back(digit * std::pow(10, e));
  auto above = [](double bound) { return [=](double tick) { return tick > bound * (1 + 1e-9); }; };
  auto begin = std::ranges::find_if(axis.ticks, above(low));
  axis.ticks.erase(axis.ticks.begin(), begin == axis.ticks.begin() ? begin : begin - 1);
  auto end = std::ranges::find_if(axis.ticks, above(high * (1 - 2e-9)));
  if (end != axis.ticks.end()) axis.ticks.erase(end + 1, axis.ticks.end());
  end_at_ticks(axis);
  return axis;
}

}  // namespace

double Axis::at(double value) const {
  if (scale == Scale::linear) return (value - low) / (high - low);
  return std::log(value / low) / std::log(high / low);
}

std::string Axis::label(double tick) const {
  if (scale != Scale::doublings || tick < 1) return short_number(tick);
  constexpr const char* superscripts[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = "2";
  for (char digit : fmt::format("{:.0f}", std::log2(tick))) text += superscripts[digit - '0'];
  return text;
}

Axis make_axis(Scale scale, double low, double high, int count) {
  check(low <= high && (scale == Scale::linear || low > 0),
        "report: an axis from {} to {}; expected an ascending range, of logarithms above 0", low,
        high);
  if (scale == Scale::linear) return linear(low, high, count);
  if (scale == Scale::doublings) return powers(scale, 2, low, high, count);
  return high / low < 100 ? digits(low, high) : powers(scale, 10, low, high, count);
}

Axis step_axis(double low, double high, int count) {
  if (high == low) low -= 1, high += 1;
  double step = std::max(1., round_up((high - low) / count));
  Axis axis{Scale::linear, low, high};
  for (double i = std::ceil(low / step); i <= high / step; ++i) axis.ticks.push_back(i * step);
  return axis;
}

std::string short_number(double x) {
  constexpr std::pair<double, const char*> units[] = {
      {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (auto [size, unit] : units)
    if (std::abs(x) >= size && std::abs(x) >= 1e4 && std::abs(x) < 1e18)
      return fmt::format("{:.4g}{}", x / size, unit);
  return fmt::format("{:.4g}", x);
}

}  // namespace triax::parallel::report
