#include "triax/parallel/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "triax/core/error.h"

namespace triax::parallel::sampler_test {

std::vector<int64_t> epoch(const Sampler& s, int64_t number, int64_t size = 1000) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i) order.push_back(s.at(number * size + i));
  return order;
}

TEST(Sampler, EverySampleOncePerEpoch) {
  for (int64_t size : {1, 2, 3, 4, 5, 10, 64, 97, 1000, 65536, 65537})
    for (int64_t e : {0, 1, 1000}) {
      auto order = epoch(Sampler(size, 7), e, size);
      std::sort(order.begin(), order.end());
      for (int64_t i = 0; i < size; ++i) ASSERT_EQ(order[size_t(i)], i) << size << ' ' << e;
    }
}

TEST(Sampler, EpochsAndSeedsDiffer) {
  Sampler s(1000, 1);
  EXPECT_NE(epoch(s, 0), epoch(s, 1));
  EXPECT_NE(epoch(s, 0), epoch(Sampler(1000, 2), 0));
  EXPECT_EQ(epoch(s, 3), epoch(Sampler(1000, 1), 3));
}

/// Checkpoints say only how many samples were consumed: the order must never change.
TEST(Sampler, OrderIsForever) {
  Sampler s(10, 42);
  EXPECT_EQ(epoch(s, 0, 10), (std::vector<int64_t>{2, 8, 0, 9, 5, 1, 4, 3, 7, 6}));
}

/// Rank r of dp takes its slice of each micro-batch, whatever their sizes: together they take the
/// same samples at the same positions.
TEST(Sampler, DoesNotDependOnHowItIsCut) {
  Sampler s(97, 5);
  for (int dp : {1, 2, 4})
    for (int micro : {1, 2, 8}) {
      std::vector<int64_t> taken(320);
      for (int64_t first = 0; first < 320; first += dp * micro)
        for (int r = 0; r < dp; ++r)
          for (int i = 0; i < micro; ++i) {
            int64_t at = first + r * micro + i;
            taken[size_t(at)] = Sampler(97, 5).at(at);
          }
      for (int64_t i = 0; i < 320; ++i) ASSERT_EQ(taken[size_t(i)], s.at(i));
    }
}

/// Over many epochs each sample comes first about equally often, and follows each other one about
/// equally often: chi-squared with 9 and 89 degrees of freedom, far in the tail.
TEST(Sampler, OrdersLookRandom) {
  constexpr int size = 10, epochs = 9000;
  Sampler s(size, 3);
  std::vector<int> first(size), pair(size * size);
  for (int e = 0; e < epochs; ++e) {
    auto order = epoch(s, e);
    ++first[size_t(order[0])];
    ++pair[size_t(order[0] * size + order[1])];
  }
  double a = 0, b = 0;
  for (int i = 0; i < size; ++i) {
    a += (first[size_t(i)] - 900.) * (first[size_t(i)] - 900.) / 900;
    for (int j = 0; j < size; ++j) {
      if (i == j) continue;
      double off = pair[size_t(i * size + j)] - 100.;
      b += off * off / 100;
    }
  }
  EXPECT_LT(a, 34);   // p = 1e-4
  EXPECT_LT(b, 148);  // p = 1e-4
}

TEST(Sampler, RefusesNothingToSample) {
  EXPECT_THROW(Sampler(0, 1), Error);
  EXPECT_THROW((void)Sampler(3, 1).at(-1), Error);
}

}  // namespace triax::parallel::sampler_test
