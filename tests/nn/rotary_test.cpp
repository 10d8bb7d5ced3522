#include "nn/rotary.h"

#include "autograd/gradcheck.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"

namespace triax {
namespace {

using test::expect_error;
using test::filled;

TEST(RotaryEmbedding, TurnsEveryHead) {
  for (auto pairs : {Rotary::Pairs::halves, Rotary::Pairs::neighbours}) {
    nn::RotaryEmbedding turn(5, 4, {.pairs = pairs});
    gradcheck([&](const Tensors& t) { return turn(narrow(t[0], 1, 1, 2), 3); },
              {filled({6, 4, 4}, 1)});
    gradcheck([&](const Tensors& t) { return turn(t[0], 5); }, {filled({5, 4}, 1)});
  }
  NoGrad guard;
  // Scores of a query and a key depend on their distance alone.
  nn::RotaryEmbedding turn(64, 8);
  Tensor rows = expand(filled({1, 8}, 3, f32), {64, 8}).contiguous(), y = turn(rows, 64);
  auto score = [&](int64_t a, int64_t b) {
    return sum(narrow(y, 0, a, 1) * narrow(y, 0, b, 1)).item();
  };
  EXPECT_NEAR(score(3, 10), score(50, 57), 1e-5);
  EXPECT_GT(std::abs(score(3, 10) - score(3, 11)), 1e-4);
  expect_error([&] { turn(rows, 65); }, {"rotary: time 65 for 64 tokens", "64 positions"});
  expect_error([&] { turn(narrow(rows, 1, 0, 4), 64); }, {"rotary: x [64, 4]", "head_dim"});
}

}  // namespace
}  // namespace triax
