// Bits of named tensors: what differs is named, and only what to_lines wrote is read.
#include "parallel/train/step/digests.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

Tensor numbers(std::vector<float> values) {
  auto size = std::ssize(values);
  return from_host(std::move(values), {size}, cpu);
}

TEST(Digests, NameTheFirstThatDiffersInBits) {
  Digests before{digest_of("a", numbers({1, 2})), digest_of("b", numbers({3, 0}))};
  EXPECT_EQ(compare(before, before).count, 0u);
  Digests now{before[0], digest_of("b", numbers({3, -0.f}))};
  EXPECT_EQ(compare(before, now).count, 1u);
  EXPECT_EQ(compare(before, now).first,
            "b: f32 [2], norm 3, crc32c 378bb8b7; there f32 [2], norm 3, crc32c b57d83cf");
  now[1] = digest_of("b", numbers({3, 0}).view({2, 1}));
  EXPECT_EQ(compare(before, now).count, 1u) << "same bytes, another shape";
  now[1] = digest_of("c", numbers({3, 0}));
  EXPECT_EQ(compare(before, now).count, 2u) << "one is new, one is gone";
  now.pop_back();
  EXPECT_EQ(compare(before, now).first.substr(0, 10), "b: nothing");
}

TEST(Digests, AreReadAsTheyWereWritten) {
  Digests rows{digest_of("a", numbers({1, INFINITY})), bits_of("b", empty({0}, bf16, cpu))};
  Digests again = from_lines(to_lines(rows), "here");
  EXPECT_EQ(compare(rows, again).count, 0u);
  EXPECT_EQ(again[0].norm, INFINITY);
  std::string line = "a\tf32 [2]\t1\t00000000";
  for (std::string text :
       std::vector<std::string>{line, "\n", line + "\n" + line + "\n", line + "\t\n", line + "g\n"})
    test::expect_data_error([&] { from_lines(text, "here"); }, {"here:", "expected a table"});
}

}  // namespace
}  // namespace triax::parallel
