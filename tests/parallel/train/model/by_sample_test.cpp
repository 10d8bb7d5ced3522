#include "parallel/train/model/by_sample.h"

#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

TEST(BySample, AnIndependentLayerReturnsRowsOfEachSample) {
  nn::Layer total{.name = "total", .run = [](const Tensor& x, const nn::Batch&) { return sum(x); }};
  nn::Batch batch{.input = zeros({2, 4}, f32, cpu)};
  Tensor x = zeros({2 * Matmul::block, 3}, f32, cpu);
  EXPECT_EQ(by_sample(total, nn::input_shapes(batch)).run(x, batch).shape(), Shape{2});
  total.independent = true;
  test::expect_config_error(
      [&] { by_sample(total, nn::input_shapes(batch)).run(x, batch); },
      {"of 2 samples; expected rows of each", "independent", "--micro-batch 1"});
  Tensor few = zeros({2 * Matmul::block - 2, 3}, f32, cpu);  // so it sees one after the other
  EXPECT_EQ(by_sample(total, nn::input_shapes(batch)).run(few, batch).shape(), Shape{2});
}

TEST(BySample, TrainingBatchesHaveOneShape) {
  nn::Layer twice{.name = "twice", .run = [](auto&, auto& b) { return b.input * 2.; }};
  nn::Layer layer = by_sample(twice, {Shape{2, 4}});
  auto run = [&](const Shape& shape, int64_t first) {
    layer.run({}, {.input = zeros(shape, f32, cpu), .first = first});
  };
  run({2, 4}, 2);
  test::expect_data_error(
      [&] {
        run({2, 5}, 4);
      },
      {"bitwise: a batch has input [2, 5], the first samples have [2, 4]", "Pad all samples",
       "--micro-batch 1"});
  run({1, 5}, 4);  // alone, nothing is padded
  run({2, 5}, nn::evaluation);
}

}  // namespace
}  // namespace triax::parallel
