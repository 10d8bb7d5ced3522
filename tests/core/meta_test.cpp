#include "core/meta.h"

#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "autograd/ops.h"

namespace triax {
namespace {

TEST(Meta, HasShapesWithoutBytes) {
  auto outer = memory::counter();
  memory::set_counter(std::make_shared<memory::Counter>());
  {
    Tensor large = zeros({1000, 1000, 1000, 1000}, f32, meta_device);  // 4 TB
    EXPECT_EQ(memory::counter()->live(), 4'000'000'000'000);
    EXPECT_EQ(describe(large), "[1000, 1000, 1000, 1000] f32 on meta");
  }
  EXPECT_EQ(memory::counter()->live(), 0);
  memory::set_counter(outer);
  Tensor five = full({3}, 5, f32, cpu).to(meta_device);
  EXPECT_EQ(five.to_host<float>(), std::vector<float>(3, 0.f)) << "values are zero";
  EXPECT_EQ(full({}, 5, f64, meta_device).item(), 0);
}

TEST(Meta, CountsProductsForwardAndBackward) {
  Tensor x = zeros({30, 20}, f32, meta_device), w = zeros({20, 10}, f32, meta_device);
  require_grad(x), require_grad(w);
  meta_work() = {};
  Tensor y = sum(matmul(x, w), {0, 1});
  EXPECT_EQ(meta_work().products, 2. * 30 * 20 * 10);
  backward(y);
  EXPECT_EQ(meta_work().products, 3 * 2. * 30 * 20 * 10);
  EXPECT_GT(meta_work().bytes, 4 * (30 * 10 + 1));
  EXPECT_EQ(grad(x).shape(), x.shape());
}

TEST(Meta, CountsHalfOfAttention) {
  constexpr int64_t time = 64, heads = 2, dim = 16;
  Tensor qkv = zeros({3 * time, heads * 3 * dim}, f32, meta_device);
  meta_work() = {};
  Tensor y = causal_attention(qkv, {time, dim});
  // Scores and their sums: two products of time x time x dim a head, of which half is seen.
  EXPECT_EQ(meta_work().products, 3 * heads * 2 * (2. * time * time * dim) / 2);
  EXPECT_EQ(y.shape(), Shape({3 * time, heads * dim}));
}

}  // namespace
}  // namespace triax
