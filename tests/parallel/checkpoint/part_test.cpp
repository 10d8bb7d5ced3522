#include "parallel/checkpoint/part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace triax::parallel {
namespace {

// The indices in the full tensor of a part's elements, by walking over every element.
std::vector<int64_t> indices(const Part& p) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < p.full.numel(); ++i) {
    int64_t at = p.dim < 0 ? 0 : i / contiguous_strides(p.full)[p.dim] % p.full[p.dim];
    if (p.dim < 0 || (at >= p.begin && at < p.begin + p.length)) all.push_back(i);
  }
  auto end = p.flat_end < 0 ? all.end() : all.begin() + p.flat_end;
  return {all.begin() + p.flat_begin, end};
}

Part random_part(const Shape& full, std::mt19937& random) {
  auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  Part p{.full = full};
  if (full.rank() > 0 && below(4) > 0) {
    p.dim = int(below(full.rank()));
    p.begin = below(full[p.dim] + 1);
    p.length = below(full[p.dim] - p.begin + 1);
  }
  if (below(2) > 0) {
    int64_t held = slice_shape(p).numel();
    p.flat_begin = below(held + 1);
    p.flat_end = p.flat_begin + below(held - p.flat_begin + 1);
  }
  return p;
}

TEST(Part, OverlapsOfRandomPartsAreExact) {
  std::mt19937 random(3);
  const std::vector<Shape> shapes = {{}, {7}, {4, 6}, {3, 1, 5}, {2, 3, 4, 2}, {2, 0, 3}};
  int shared = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Shape& full = shapes[random() % shapes.size()];
    Part a = random_part(full, random), b = random_part(full, random);
    ASSERT_EQ(problem(a), "");
    auto in_a = indices(a), in_b = indices(b);
    ASSERT_EQ(count(a), int64_t(in_a.size()));
    std::vector<int64_t> found(in_a.size(), -1), expected(in_a.size(), -1);
    for_each_overlap(a, b, [&](const Overlap& o) {
      ASSERT_GT(o.count, 0);
      for (int64_t k = 0; k < o.count; ++k) {
        ASSERT_EQ(found.at(size_t(o.to + k)), -1);
        ASSERT_LT(o.from + k, count(b));
        found[size_t(o.to + k)] = o.from + k;
      }
    });
    for (size_t k = 0; k < in_a.size(); ++k) {
      auto same = std::find(in_b.begin(), in_b.end(), in_a[k]);
      if (same != in_b.end()) expected[k] = same - in_b.begin(), ++shared;
    }
    ASSERT_EQ(found, expected);
  }
  EXPECT_GT(shared, 20'000);
}

TEST(Part, TilingFindsTheFirstFault) {
  std::mt19937 random(4);
  int exact = 0;
  for (int i = 0; i < 20'000; ++i) {
    Shape full = i % 2 ? Shape{3, 4} : Shape{2, 2, 3};
    std::vector<Part> parts;
    Part rows{.full = full, .dim = 0, .begin = 0, .length = 1}, rest = rows;
    rest.begin = 1;
    rest.length = full[0] - 1;
    int64_t cut = int64_t(random() % uint64_t(slice_shape(rest).numel() + 1));
    Part head = rest, tail = rest;
    head.flat_end = cut;
    tail.flat_begin = cut;
    parts = {tail, rows, head};
    if (random() % 2) parts[random() % 3] = random_part(full, random);
    std::vector<int> held(size_t(full.numel()));
    for (const Part& p : parts)
      for (int64_t index : indices(p)) ++held[size_t(index)];
    auto wrong = std::find_if(held.begin(), held.end(), [](int n) { return n != 1; });
    Tiling found = tiling(full, parts);
    ASSERT_EQ(found.exact, wrong == held.end());
    ASSERT_EQ(found.at, wrong - held.begin());
    exact += found.exact;
  }
  EXPECT_GT(exact, 9'000);
}

TEST(Part, ImpossiblePartsAreNamed) {
  Shape full{4, 6};
  EXPECT_NE(problem({.full = full, .dim = 2, .begin = 0, .length = 1}), "");
  EXPECT_NE(problem({.full = full, .dim = -2}), "");
  EXPECT_NE(problem({.full = full, .dim = 0, .begin = 3, .length = 2}), "");
  EXPECT_NE(problem({.full = full, .dim = 0, .begin = -1, .length = 2}), "");
  EXPECT_NE(problem({.full = full, .dim = 0, .begin = INT64_MAX, .length = INT64_MAX}), "");
  EXPECT_NE(problem({.full = full, .begin = 1}), "");
  EXPECT_NE(problem({.full = full, .flat_begin = 5, .flat_end = 4}), "");
  EXPECT_NE(problem({.full = full, .flat_begin = 0, .flat_end = 25}), "");
  EXPECT_NE(problem({.full = full, .flat_begin = 0, .flat_end = -2}), "");
  EXPECT_EQ(problem({.full = full, .flat_begin = 24, .flat_end = 24}), "");
}

}  // namespace
}  // namespace triax::parallel
