#include "parallel/train/by_sample.h"

#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

TEST(BySample, AnIndependentLayerReturnsRowsOfEachSample) {
  nn::Layer total{.name = "total", .run = [](const Tensor& x, const nn::Batch&) { return sum(x); }};
  nn::Batch batch{.input = zeros({2, 4}, f32, cpu)};
  Tensor x = zeros({2 * Matmul::block, 3}, f32, cpu);
  EXPECT_EQ(by_sample(total).run(x, batch).shape(), Shape{2});
  total.independent = true;
  test::expect_error([&] { by_sample(total).run(x, batch); },
                     {"of 2 samples; expected rows of each", "independent", "--micro-batch 1"},
                     Exit::config);
  Tensor few = zeros({2 * Matmul::block - 2, 3}, f32, cpu);  // so it sees one after the other
  EXPECT_EQ(by_sample(total).run(few, batch).shape(), Shape{2});
}

}  // namespace
}  // namespace triax::parallel
