#include "triax/core/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace triax::random {
namespace {

void expect_words(const Words& w, uint32_t x, uint32_t y, uint32_t z, uint32_t last) {
  EXPECT_EQ(w.x, x);
  EXPECT_EQ(w.y, y);
  EXPECT_EQ(w.z, z);
  EXPECT_EQ(w.w, last);
}

// Random123's known answers for philox4x32-10. Its counter words 0, 1 are our row, 2, 3 our column.
TEST(Philox, KnownAnswers) {
  expect_words(philox(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_words(philox(~0ull, ~0ull, ~0ull), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect_words(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e), 0xd16cfe09,
               0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Philox, FourColumnsShareACall) {
  Words w = philox(5, 6, 7);
  EXPECT_EQ(word(5, 6, 28), w.x);
  EXPECT_EQ(word(5, 6, 29), w.y);
  EXPECT_EQ(word(5, 6, 30), w.z);
  EXPECT_EQ(word(5, 6, 31), w.w);
}

TEST(Uniform, LiesStrictlyBetween0And1) {
  EXPECT_GT(unit(0), 0);
  EXPECT_LT(unit(~0u), 1);
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) sum += double(uniform(1, i / 100, i % 100));
  EXPECT_NEAR(sum / 1e5, 0.5, 0.005);
}

TEST(Mask, KeepsTheShareAndTheMean) {
  Mask mask{0.25f, 3, 10, 20};
  int kept = 0;
  for (int64_t i = 0; i < 100000; ++i) {
    float m = mask.at(i / 100, i % 100);
    ASSERT_TRUE(m == 0.f || m == 1.f / 0.75f);
    kept += m != 0;
  }
  EXPECT_NEAR(kept, 75000, 700);
  Mask shifted{0.25f, 3, 15, 22};
  EXPECT_EQ(mask.at(5 + 7, 2 + 9), shifted.at(7, 9));
  EXPECT_EQ((Mask{}.at(1, 1)), 1);
}

TEST(Normal, HasMean0AndVariance1) {
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    double x = normal(42, i);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.015);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
}

TEST(Key, DependsOnSeedAndName) {
  std::set<uint64_t> keys;
  for (uint64_t seed : {0, 1, 2})
    for (const char* name : {"", "a", "b", "ab", "ba"}) keys.insert(key(seed, name));
  EXPECT_EQ(keys.size(), 15u);
  EXPECT_EQ(key(0, "a"), 0xaf63dc4c8601ec8cull);  // FNV-1a's own answer
}

}  // namespace
}  // namespace triax::random
