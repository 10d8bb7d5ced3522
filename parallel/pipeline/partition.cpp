#include "triax/parallel/pipeline/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::parallel {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double rounding = 1e-9;  // relative; sums of equal costs differ by less

/// Finds the best cut of the first items into the first parts, for a rating that grows with parts.
class Cutter {
 public:
  Cutter(const std::vector<double>& costs, int parts)
      : items_(costs.size()), parts_(size_t(parts)) {
    sums_.resize(items_ + 1);
    std::partial_sum(costs.begin(), costs.end(), sums_.begin() + 1);
    least_ = items_ >= parts_ ? 1 : 0;
  }

  /// Returns the lowest rating; `counts` is then that of its cut. `rate(so_far, cost)`: the rating
  /// of some parts and one more of that cost.
  template <class Rate> double cut(Rate rate) {
    best_.assign(parts_ + 1, std::vector<double>(items_ + 1, infinity));
    from_.assign(parts_ + 1, std::vector<size_t>(items_ + 1, 0));
    best_[0][0] = 0;
    for (size_t part = 1; part <= parts_; ++part)
      for (size_t end = 0; end <= items_; ++end)
        for (size_t begin = 0; begin + least_ <= end; ++begin) {
          double rating = rate(best_[part - 1][begin], sums_[end] - sums_[begin]);
          // Among equal ones the earliest cut, which leaves most to this part.
          if (rating < best_[part][end] * (1 - rounding)) {
            best_[part][end] = rating;
            from_[part][end] = begin;
          }
        }
    return best_[parts_][items_];
  }

  std::vector<int64_t> counts() const {
    std::vector<int64_t> counts(parts_);
    size_t end = items_;
    for (size_t part = parts_; part > 0; --part) {
      counts[part - 1] = int64_t(end - from_[part][end]);
      end = from_[part][end];
    }
    return counts;
  }

 private:
  size_t items_, parts_, least_;
  std::vector<double> sums_;               // of the first items
  std::vector<std::vector<double>> best_;  // by parts, items
  std::vector<std::vector<size_t>> from_;  // where the last of these parts begins
};

/// The unevenness of stages, in all their chunks, and of virtual stages: sums of squares.
struct Unevenness {
  double stages = 0, virtual_stages = 0, dearest = 0;
  bool above(const Unevenness& o) const {
    if (std::abs(stages - o.stages) > rounding * stages) return stages > o.stages;
    return virtual_stages - o.virtual_stages > rounding * virtual_stages;
  }
};
Unevenness unevenness(const std::vector<double>& sums, const PipelineShape& shape,
                      const std::vector<int64_t>& counts) {
  std::vector<double> stages(size_t(shape.stages), 0);
  Unevenness found;
  size_t begin = 0;
  for (int v = 0; v < shape.virtual_stages(); ++v) {
    size_t end = begin + size_t(counts[size_t(v)]);
    double cost = sums[end] - sums[begin];
    stages[size_t(shape.stage_of(v))] += cost;
    found.virtual_stages += cost * cost;
    begin = end;
  }
  found.stages = std::inner_product(stages.begin(), stages.end(), stages.begin(), 0.);
  found.dearest = std::ranges::max(stages);
  return found;
}

/// Returns whole numbers up to `most`, separated by commas; none if `text` is something else.
std::vector<int64_t> counts_in(const std::string& text, int64_t most) {
  std::vector<int64_t> counts;
  for (const std::string& part : parts_of(text, ',')) {
    int64_t& count = counts.emplace_back();
    if (!parse_number(part, count) || count < 0 || count > most) return {};
  }
  return counts;
}

}  // namespace

std::vector<int64_t> partition(const std::vector<double>& costs, int parts) {
  check(parts >= 1, "partition: {} parts; expected at least 1", parts);
  for (double c : costs)
    check(std::isfinite(c) && c >= 0, "partition: cost {}; expected one from 0, finite", c);
  Cutter cutter(costs, parts);
  double largest = cutter.cut([](double so_far, double cost) { return std::max(so_far, cost); });
  double most = largest * (1 + rounding);
  cutter.cut(
      [&](double so_far, double cost) { return cost > most ? infinity : so_far + cost * cost; });
  return cutter.counts();
}

std::vector<int64_t> partition_chunks(const std::vector<double>& costs,
                                      const PipelineShape& shape) {
  auto even = partition(costs, shape.virtual_stages()), counts = even;
  if (shape.chunks == 1) return even;
  std::vector<double> sums(costs.size() + 1);
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  Unevenness before = unevenness(sums, shape, counts), least = before;
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& from : counts)
      for (auto& to : counts) {
        if (&from == &to || from < 2) continue;
        --from, ++to;  // the virtual stages in between each hand one on
        if (auto now = unevenness(sums, shape, counts); least.above(now)) least = now, moved = true;
        else ++from, --to;
      }
  }
  return least.dearest < before.dearest * (1 - rounding) ? counts : even;
}

std::vector<int64_t> parse_placement(const std::string& text, const PipelineShape& shape,
                                     int64_t blocks) {
  int parts = shape.virtual_stages();
  auto expect = [&](bool ok, const std::string& wrong) {
    if (ok) return;
    auto even = partition(std::vector<double>(size_t(blocks), 1.0), parts);
    fail(Exit::config,
         "placement: {}; expected {} counts ({} stages x {} chunks) that add up to {} blocks, such "
         "as --placement {}",
         wrong, parts, shape.stages, shape.chunks, blocks, join(even, ","));
  };
  std::vector<int64_t> counts = counts_in(text, blocks);
  expect(!counts.empty(),
         fmt::format("`{}` is no list of whole numbers from 0 to {}", printable(text), blocks));
  expect(std::ssize(counts) == parts,
         fmt::format("{} has {} counts", printable(text), counts.size()));
  int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  expect(sum == blocks, fmt::format("{} adds up to {}", printable(text), sum));
  return counts;
}

std::vector<nn::Layers> layers_of_stage(const nn::Layers& model, const std::vector<int64_t>& counts,
                                        const PipelineShape& shape, int stage) {
  int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  check(std::ssize(counts) == shape.virtual_stages() && sum == std::ssize(model),
        "pipeline: {} layers placed on {} virtual stages; expected {} layers on {}", sum,
        counts.size(), model.size(), shape.virtual_stages());
  std::vector<nn::Layers> chunks;
  for (int c = 0; c < shape.chunks; ++c) {
    auto v = shape.virtual_stage(stage, c);
    auto begin = model.begin() + std::accumulate(counts.begin(), counts.begin() + v, int64_t{0});
    chunks.emplace_back(begin, begin + counts[size_t(v)]);
  }
  return chunks;
}

}  // namespace triax::parallel
