// The terms of gradients whose bits do not depend on the mesh. correctness 58.
#include "triax/parallel/data/buckets/exact_gradients.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"

namespace triax::parallel::exact_gradients_test {

using namespace test;

/// A weight [32, 32] whose gradient two samples add to.
struct Weight {
  explicit Weight(const nn::Shard& shard = {})
      : p{.name = "w", .full = {32, 32}, .shard = shard, .value = filled({32, 32}, 1, f32)} {
    require_grad(p.value);
    collect_in(p.value, exact.collector(p, sums, nullptr));
    exact.begin(1, 1);
  }
  nn::Parameter p;
  Tensor sums = zeros({32, 32}, f64, cpu);
  ExactGradients exact{2, 1};
};

// Or a strip of tiles would hold rows of two samples, and bits depend on both.
TEST(ExactGradients, SamplesAtOnceNeedBlocksOfRows) {
  Weight w;
  for (int64_t rows : {80, 128, 130}) {
    autograd::SamplesAtOnce scope(2);
    auto run = [&] { backward(sum(linear(filled({rows, 32}, 2, f32), w.p.value))); };
    if (rows == 128) EXPECT_NO_THROW(run());
    else
      expect_config_error(run, {fmt::format("used by {} rows of 2 samples", rows), "multiple of 32",
                                "--micro-batch 1"});
  }
}

// Two samples at once give what each gives by itself, and so do chains of their rows.
TEST(ExactGradients, SamplesAtOnceAreThoseApart) {
  Tensor x = filled({128, 32}, 2, f32), dy = filled({128, 32}, 3, f32);
  for (int64_t chains : {1, 2, 4}) {
    Weight w({.chains = chains}), apart({.chains = 1});
    {
      autograd::SamplesAtOnce scope(2);
      backward(linear(x, w.p.value), dy.detach());
    }
    for (int64_t i = 0, rows = 64 / chains; i < 128; i += rows) {
      auto part = [&](const Tensor& t) { return t.narrow(0, i, rows); };
      backward(linear(part(x), apart.p.value), clone(part(dy)));
    }
    EXPECT_EQ(values(w.sums), values(apart.sums)) << chains;
  }
}

// Terms are of rows: a product's input is no such sum, though it is a parameter.
TEST(ExactGradients, AParameterMayBeTheInputOfAProduct) {
  Weight w({.chains = 4});
  Tensor v = filled({10, 32}, 2, f32), dy = filled({32, 10}, 3, f32);
  auto use = [&] { backward(linear(w.p.value, v), dy.detach()); };
  use();
  Tensor whole = matmul(dy, v), expected = zeros({32, 32}, f64, cpu);
  backend(cpu).accumulate_fixed(whole, FixedPoint{0x1p-40, 64}, expected, Write::set);
  EXPECT_EQ(values(w.sums), values(expected));
  autograd::SamplesAtOnce scope(2);
  v = filled({10, 32}, 2, f32);
  expect_config_error(use, {"used by 32 rows of 2 samples"});
}

TEST(ExactGradients, AWeightIsUsedAtMostEightTimesInAPass) {
  Weight w;
  auto use = [&](int times) {
    for (int i = 0; i < 2 * times; ++i)  // two samples
      backward(sum(linear(filled({1, 32}, 2, f32), w.p.value)));
  };
  use(8);
  EXPECT_NO_THROW(w.exact.check_uses(1));
  use(9);
  expect_config_error([&] { w.exact.check_uses(1); },
                      {"parameter w is used 9 times in a pass; expected at most 8"});
}

}  // namespace triax::parallel::exact_gradients_test
