// correctness 30: the order of samples is a pure function of (seed, samples consumed).
#include "parallel/data/sampler.h"

#include <set>
#include <vector>

#include "tests/support/tensors.h"

namespace triax::parallel {
namespace {

std::vector<int64_t> epoch(const Sampler& s, int64_t size, int64_t number) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back(s.at(number * size + i));
  return order;
}

TEST(SamplerTest, EveryEpochVisitsEverySampleOnce) {
  for (int64_t size : {1, 2, 3, 4, 5, 10, 16, 17, 97, 1000, 4099}) {
    Sampler s(size, 1);
    for (int64_t e : {0, 1, 7}) {
      auto order = epoch(s, size, e);
      std::set<int64_t> seen(order.begin(), order.end());
      EXPECT_EQ(int64_t(seen.size()), size) << "size " << size << " epoch " << e;
      EXPECT_EQ(*seen.begin(), 0);
      EXPECT_EQ(*seen.rbegin(), size - 1);
    }
  }
}

TEST(SamplerTest, EpochsAndSeedsDiffer) {
  Sampler a(1000, 1), b(1000, 2), same(1000, 1);
  EXPECT_NE(epoch(a, 1000, 0), epoch(a, 1000, 1));
  EXPECT_NE(epoch(a, 1000, 0), epoch(b, 1000, 0));
  EXPECT_EQ(epoch(a, 1000, 3), epoch(same, 1000, 3));
}

// Neighbours in the order are not neighbours in the data, and no part of it comes first.
TEST(SamplerTest, TheOrderIsMixed) {
  const int64_t n = 10000;
  auto order = epoch(Sampler(n, 3), n, 0);
  double first_half = 0, jump = 0;
  for (int64_t i = 0; i < n / 2; ++i) first_half += double(order[size_t(i)]);
  for (int64_t i = 1; i < n; ++i) jump += std::abs(double(order[size_t(i)] - order[size_t(i - 1)]));
  EXPECT_NEAR(first_half / (n / 2), n / 2.0, 150);
  EXPECT_NEAR(jump / n, n / 3.0, 150);
}

TEST(SamplerTest, RefusesWhatIsNoPosition) {
  test::expect_error([] { Sampler(0, 1); }, {"sampler", "0 samples"});
  test::expect_error([] { Sampler(3, 1).at(-1); }, {"position -1"});
}

}  // namespace
}  // namespace triax::parallel
