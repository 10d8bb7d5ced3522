#include "triax/nn/rotary.h"

#include "tests/support/expect_error.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace triax {
namespace {

using namespace test;

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

// The formulas of the sources, written as there.
TEST(RotaryEmbedding, ExtendsTheContext) {
  constexpr int64_t dim = 128;
  nn::RotaryOptions plain{.base = 5e5}, linear = plain, llama3 = plain;
  linear.scale = llama3.scale = 8;
  llama3.original_context = 8192;
  int kept = 0, divided = 0, mixed = 0;
  for (int64_t i = 0; i < dim / 2; ++i) {
    double f = plain.frequency(i, dim), wavelength = 2 * M_PI / f;
    EXPECT_DOUBLE_EQ(f, std::pow(5e5, -2 * double(i) / dim));
    EXPECT_DOUBLE_EQ(linear.frequency(i, dim), f / 8);
    double expected = f;
    if (wavelength > 8192. / 1) expected = f / 8, ++divided;
    else if (wavelength < 8192. / 4) ++kept;
    else {
      double smooth = (8192 / wavelength - 1) / (4 - 1);
      expected = (1 - smooth) * f / 8 + smooth * f, ++mixed;
    }
    EXPECT_DOUBLE_EQ(llama3.frequency(i, dim), expected) << i;
  }
  EXPECT_GT(std::min({kept, divided, mixed}), 3);
  nn::RotaryEmbedding far(64, 8, {.scale = 4}), near(16, 8);  // positions divided by 4
  NoGrad guard;
  Tensor rows = expand(filled({1, 8}, 3, f32), {64, 8}).contiguous();
  Tensor every_fourth = far(rows, 64).view({16, 4, 8}).narrow(1, 0, 1).contiguous();
  expect_near(near(rows.narrow(0, 0, 16), 16), values(every_fourth), 1e-6);
}

}  // namespace
}  // namespace triax
