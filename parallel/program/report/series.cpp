#include "parallel/program/report/series.h"

#include <algorithm>
#include <cmath>

namespace triax::parallel::report {
namespace {

/// Of the points from `begin` to before `end`, those to keep, in order: the lowest and the highest,
/// the first if no point has a value.
std::vector<size_t> extremes(const Points& all, size_t begin, size_t end) {
  size_t low = begin, high = begin;
  for (size_t i = begin; i < end; ++i) {
    double x = all.values[i];
    if (std::isnan(x)) continue;
    if (!(all.values[low] <= x)) low = i;  // true for NaN
    if (!(all.values[high] >= x)) high = i;
  }
  std::vector<size_t> kept = {low, high};
  if (begin == 0) kept.push_back(0);
  if (end == all.size()) kept.push_back(end - 1);
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

}  // namespace

Points thinned(const Points& all, double low, double high, int columns) {
  if (all.size() <= size_t(2 * columns)) return all;
  auto column = [&](size_t i) {
    return std::min(columns - 1, int((all.steps[i] - low) / (high - low) * columns));
  };
  Points kept;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && column(end) == column(begin)) ++end;
    for (size_t i : extremes(all, begin, end)) kept.add(all.steps[i], all.values[i]);
  }
  return kept;
}

Points running_mean(const Points& all, size_t window, size_t count) {
  Points means;
  auto add = [&](size_t i) {
    size_t begin = i - std::min(i, window / 2), end = std::min(all.size(), i + window / 2 + 1);
    double sum = 0, number = 0;
    for (size_t k = begin; k < end; ++k)
      if (!std::isnan(all.values[k])) sum += all.values[k], ++number;
    means.add(all.steps[i], sum / number);
  };
  size_t every = std::max<size_t>(1, all.size() / std::max<size_t>(1, count));
  for (size_t i = 0; i + 1 < all.size(); i += every) add(i);
  if (all.size() > 0) add(all.size() - 1);
  return means;
}

}  // namespace triax::parallel::report
