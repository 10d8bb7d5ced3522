#include "examples/text/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace triax::text {
namespace {

/// Returns a function of a rank: tokens in order of falling logits, equal ones in their own; sorted
/// as far as they are asked for, since few of a large vocabulary are.
auto ranking_of(const std::vector<double>& logits) {
  auto less = [&logits](size_t a, size_t b) {
    return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
  };
  std::vector<size_t> heap(logits.size());
  std::iota(heap.begin(), heap.end(), size_t{0});
  std::ranges::make_heap(heap, less);
  return [less, heap = std::move(heap), ranked = std::vector<size_t>()](size_t rank) mutable {
    for (; ranked.size() <= rank; heap.pop_back()) {
      std::ranges::pop_heap(heap, less);
      ranked.push_back(heap.back());
    }
    return ranked[rank];
  };
}

}  // namespace

size_t draw(const std::vector<double>& logits, const Sampling& how, double uniform) {
  check_input(std::none_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x); }),
              Exit::non_finite, "sample: a logit is not a number; expected a model that is finite");
  auto largest = size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (how.temperature == 0) return largest;
  std::vector<double> weights;
  for (double x : logits) weights.push_back(std::exp((x - logits[largest]) / how.temperature));
  auto ranking = ranking_of(logits);
  size_t count = logits.size();
  double total = 0;
  if (how.top_k > 0 && size_t(how.top_k) < count) {
    count = size_t(how.top_k);
    for (size_t i = 0; i < count; ++i) total += weights[ranking(i)];
  } else {
    for (double weight : weights) total += weight;
  }
  if (how.top_p < 1) {
    double enough = how.top_p * total;
    size_t kept = 0;
    for (total = 0; kept < count && total < enough; ++kept) total += weights[ranking(kept)];
    count = kept;
  }
  double left = uniform * total;
  for (size_t i = 0; i + 1 < count; ++i)
    if ((left -= weights[ranking(i)]) <= 0) return ranking(i);
  return ranking(count - 1);
}

}  // namespace triax::text
