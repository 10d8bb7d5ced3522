#include "triax/parallel/pipeline/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "tests/support/expect_error.h"

namespace triax::parallel::partition_test {

using Counts = std::vector<int64_t>;
using namespace test;

std::vector<double> equal(int items, double cost = 1) {
  return std::vector<double>(size_t(items), cost);
}

/// The largest piece, and how uneven they are.
std::pair<double, double> rating(const std::vector<double>& costs, const Counts& counts) {
  double largest = 0, squares = 0;
  size_t item = 0;
  for (int64_t count : counts) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += costs[item++];
    largest = std::max(largest, sum);
    squares += sum * sum;
  }
  return {largest, squares};
}

/// The best of all ways to cut, tried one by one.
void try_all(const std::vector<double>& costs, size_t parts, int64_t left, Counts& counts,
             std::pair<double, double>& best) {
  if (counts.size() + 1 == parts) {
    counts.push_back(left);
    if (left > 0 || costs.size() < parts) best = std::min(best, rating(costs, counts));
    counts.pop_back();
    return;
  }
  for (int64_t c = costs.size() < parts ? 0 : 1; c <= left; ++c) {
    counts.push_back(c);
    try_all(costs, parts, left - c, counts, best);
    counts.pop_back();
  }
}

TEST(Partition, EqualCosts) {
  EXPECT_EQ(partition(equal(12), 4), (Counts{3, 3, 3, 3}));
  EXPECT_EQ(partition(equal(10), 4), (Counts{2, 2, 3, 3}));
  EXPECT_EQ(partition(equal(11), 4), (Counts{2, 3, 3, 3}));
  EXPECT_EQ(partition(equal(5), 1), (Counts{5}));
}

TEST(Partition, DoesNotFollowRounding) {  // sums of 0.1 differ by where they begin
  for (int items = 1; items <= 60; ++items)
    for (int parts = 1; parts <= 8; ++parts)
      for (double cost : {0.1, 0.7, 1.0 / 3})
        EXPECT_EQ(partition(equal(items, cost), parts), partition(equal(items), parts));
}

TEST(Partition, HeavyEnds) {  // embedding, blocks, head
  EXPECT_EQ(partition({2, 1, 1, 1, 1, 1, 1, 2}, 2), (Counts{4, 4}));
  EXPECT_EQ(partition({0.1, 1, 1, 1, 1, 3}, 3), (Counts{3, 2, 1}));
  EXPECT_EQ(partition({9, 1, 1, 1}, 3), (Counts{1, 1, 2}));  // even, although 9 rules
}

TEST(Partition, FewOrFreeItems) {
  EXPECT_EQ(partition(equal(4), 4), (Counts{1, 1, 1, 1}));
  Counts few = partition(equal(2), 4);
  EXPECT_EQ(*std::max_element(few.begin(), few.end()), 1);
  EXPECT_EQ(few[0] + few[1] + few[2] + few[3], 2);
  EXPECT_EQ(partition({}, 3), (Counts{0, 0, 0}));
  for (int64_t count : partition(equal(9, 0), 4)) EXPECT_GE(count, 1);
  for (int64_t count : partition({5, 0, 0, 0}, 4)) EXPECT_EQ(count, 1);
}

TEST(Partition, IsTheBestOfAll) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<double> costs(random() % 9);
    for (double& c : costs) c = double(random() % 7);
    auto parts = 1 + random() % 5;
    Counts counts = partition(costs, int(parts)), tried;
    auto scaled = costs;  // by 0.1: only the rounding differs
    for (double& c : scaled) c *= 0.1;
    EXPECT_EQ(partition(scaled, int(parts)), counts);
    auto best = std::pair(std::numeric_limits<double>::infinity(), 0.0);
    try_all(costs, parts, std::ssize(costs), tried, best);
    EXPECT_EQ(rating(costs, counts), best) << testing::PrintToString(costs) << " in " << parts;
    if (costs.size() >= parts) {
      EXPECT_GE(*std::min_element(counts.begin(), counts.end()), 1);
    }
  }
}

double dearest_stage(const std::vector<double>& costs, const PipelineShape& shape,
                     const Counts& counts) {
  std::vector<double> stages(size_t(shape.stages), 0);
  size_t next = 0;
  for (int v = 0; v < shape.virtual_stages(); ++v)
    for (int64_t i = 0; i < counts[size_t(v)]; ++i)
      stages[size_t(shape.stage_of(v))] += costs[next++];
  return *std::ranges::max_element(stages);
}

double cheapest(const std::vector<double>& costs, const PipelineShape& shape, Counts& counts,
                int64_t left) {
  auto parts = size_t(shape.virtual_stages());
  if (counts.size() + 1 == parts) {
    counts.push_back(left);
    double dearest = dearest_stage(costs, shape, counts);
    counts.pop_back();
    return dearest;
  }
  double best = std::numeric_limits<double>::infinity();
  for (int64_t c = 1; c + int64_t(parts - counts.size()) - 1 <= left; ++c) {
    counts.push_back(c);
    best = std::min(best, cheapest(costs, shape, counts, left - c));
    counts.pop_back();
  }
  return best;
}

// A stage's chunks count together: one that has both ends of the model has fewer blocks.
TEST(Partition, BalancesStagesOfSeveralChunks) {
  PipelineShape v{.stages = 4, .chunks = 2, .placement = Placement::v};
  std::vector<double> model{0.1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
  EXPECT_EQ(dearest_stage(model, v, partition_chunks(model, v)), 3.1);
  EXPECT_EQ(partition_chunks(equal(16), v), partition(equal(16), 8));
  std::vector<double> with_head(14, 1);
  with_head.front() = 0.1, with_head.back() = 5.4;
  EXPECT_EQ(partition_chunks(with_head, {.stages = 4, .chunks = 2}),
            (Counts{2, 2, 2, 1, 2, 2, 2, 1}));
  std::mt19937 random(2);
  double found = 0, best = 0, chunk_by_chunk = 0;
  for (int round = 0; round < 300; ++round) {
    PipelineShape shape{.stages = 2 + int(random() % 2), .chunks = 2};
    shape.placement = random() % 2 > 0 ? Placement::v : Placement::ring;
    std::vector<double> costs(size_t(shape.virtual_stages()) + random() % 8);
    for (double& c : costs) c = 1 + double(random() % 4);
    Counts counts = partition_chunks(costs, shape), tried;
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), std::ssize(costs));
    EXPECT_GE(*std::ranges::min_element(counts), 1);
    double even = dearest_stage(costs, shape, partition(costs, shape.virtual_stages()));
    EXPECT_LE(dearest_stage(costs, shape, counts), even);
    found += dearest_stage(costs, shape, counts), chunk_by_chunk += even;
    best += cheapest(costs, shape, tried, std::ssize(costs));
  }
  EXPECT_LE(found, 1.02 * best);
  EXPECT_GE(chunk_by_chunk, 1.04 * best);
}

TEST(Partition, RefusesWhatIsNoCost) {
  expect_error([] { partition({1, 2}, 0); }, {"partition: 0 parts; expected at least 1"});
  expect_error([] { partition({1, -1}, 2); }, {"partition: cost -1; expected one from 0, finite"});
  expect_error([] { partition({std::numeric_limits<double>::infinity()}, 2); },
               {"partition: cost inf; expected one from 0, finite"});
}

TEST(Placement, AsGiven) {
  EXPECT_EQ(parse_placement("3,3,2,4", {.stages = 4}, 12), (Counts{3, 3, 2, 4}));
  EXPECT_EQ(parse_placement("3,3,2,4", {.stages = 2, .chunks = 2}, 12), (Counts{3, 3, 2, 4}));
  EXPECT_EQ(parse_placement("0,2", {.stages = 2}, 2), (Counts{0, 2}));
  EXPECT_EQ(parse_placement("7", {}, 7), (Counts{7}));
}

TEST(Placement, RefusedWithOneThatWouldDo) {
  PipelineShape four{.stages = 4}, chunked{.stages = 4, .chunks = 2};
  auto refused = [](const std::string& text, const PipelineShape& s, const std::string& what) {
    expect_config_error([&] { parse_placement(text, s, 12); }, {what});
  };
  std::string rest =
      "; expected 4 counts (4 stages x 1 chunks) that add up to 12 blocks, such as --placement "
      "3,3,3,3";
  refused("3,3,3", four, "placement: 3,3,3 has 3 counts" + rest);
  refused("3,3,3,4", four, "placement: 3,3,3,4 adds up to 13" + rest);
  for (std::string bad : {"", "3,3,x,3", "3,3,3,3,", ",3", "3;3", "-3,5,5,5", "1.5", "3, 3,3,3",
                          "13,0,0,0", "99999999999999999999"})
    refused(bad, four, "placement: `" + bad + "` is no list of whole numbers from 0 to 12" + rest);
  refused("3,3,3,3", chunked,
          "placement: 3,3,3,3 has 4 counts; expected 8 counts (4 stages x 2 chunks) that add up to "
          "12 blocks, such as --placement 1,1,1,1,2,2,2,2");
}

}  // namespace triax::parallel::partition_test
