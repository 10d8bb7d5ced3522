// Convolutions and pools: gradients against central differences in f64, and errors with their
// messages. Values against a naive loop stand in tests/core.
#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"

namespace triax {
namespace {

using namespace test;

TEST(ConvOp, Gradients) {
  auto conv = [](const ConvShape& shape) {
    return [=](const Tensors& t) { return conv2d(t[0], t[1], shape); };
  };
  Tensor x = filled({2, 5, 4, 4}, 1);
  gradcheck(conv({}), {x, filled({3, 2, 3, 4}, 2)});
  gradcheck(conv({.windows = {.stride = {2, 1}, .padding = {1, 2}}}), {x, filled({3, 3, 3, 4}, 2)});
  gradcheck(conv({.windows = {.padding = {0, 2}, .dilation = {2, 3}}, .groups = 2}),
            {x, filled({2, 2, 2, 2}, 2)});
  gradcheck(conv({.groups = 4}), {x, filled({4, 1, 1, 1}, 2)});
  gradcheck([](const Tensors& t) { return conv2d(transpose(t[0], 1, 2), t[1]); },
            {x, filled({1, 1, 2, 4}, 2)});
}

TEST(ConvOp, PoolGradients) {
  Tensor x = filled({2, 5, 4, 3}, 1);
  gradcheck([](const Tensors& t) { return max_pool2d(t[0], {2, 2}); }, {x});
  gradcheck(
      [](const Tensors& t) {
        return max_pool2d(t[0], {3, 2}, {.stride = {1, 2}, .padding = {1, 1}});
      },
      {x});
  gradcheck([](const Tensors& t) { return avg_pool2d(t[0], {2, 3}); }, {x});
  gradcheck([](const Tensors& t) { return avg_pool2d(t[0], {3, 3}, {.padding = {1, 1}}); }, {x});
}

TEST(ConvOp, PoolsStandSideBySideByDefault) {
  Tensor x = filled({1, 6, 7, 1}, 1);
  EXPECT_EQ(max_pool2d(x, {2, 3}).shape(), (Shape{1, 3, 2, 1}));
  EXPECT_EQ(avg_pool2d(x, {6, 7}).shape(), (Shape{1, 1, 1, 1}));
  EXPECT_EQ(max_pool2d(x, {2, 3}, {.padding = {1, 1}}).shape(), (Shape{1, 4, 3, 1}));
  EXPECT_NEAR(avg_pool2d(x, {6, 7}).item(), mean(x).item(), 1e-12);
}

TEST(ConvOp, WrongShapes) {
  Tensor x = filled({2, 5, 4, 6}, 1), w = filled({4, 3, 3, 6}, 2);
  expect_error(
      [&] {
        conv2d(x, filled({4, 3, 3, 5}, 2));
      },
      {"conv2d: x [2, 5, 4, 6] with weight [4, 3, 3, 5] in 1 groups", "in / groups"});
  expect_error(
      [&] {
        conv2d(x, filled({4, 3, 3, 2}, 2), {.groups = 3});
      },
      {"weight [4, 3, 3, 2] in 3 groups", "a multiple of groups"});
  expect_error([&] { conv2d(x, filled({3, 6}, 2)); }, {"conv2d: weight", "kernel height"});
  expect_error([&] { conv2d(filled({5, 4, 6}, 1), w); }, {"conv2d: x [5, 4, 6]", "[n, height"});
  expect_error(
      [&] {
        conv2d(x, filled({4, 6, 3, 6}, 2));
      },
      {"conv2d: windows of 6 at stride 1, padding 0, dilation 1 over 5 elements"});
  expect_error([&] { conv2d(x, w, {.windows = {.stride = {1, 0}}}); }, {"stride 0"});
  expect_error([&] { conv2d(x, w.to(f32)); }, {"conv2d: ", "one dtype"});
  expect_error(
      [&] {
        max_pool2d(x, {3, 3}, {.stride = {1, 1}, .padding = {2, 0}});
      },
      {"max_pool2d: padding 2 and 0 of windows 3 x 3", "at most half"});
  expect_error(  // its one window reads at -1 and 2 of 0 and 1
      [&] {
        max_pool2d(filled({1, 2, 2, 1}, 1), {2, 2}, {.padding = {1, 1}, .dilation = {3, 3}});
      },
      {"max_pool2d: a window of elements 3 apart lies in the padding around 2"});
}

}  // namespace
}  // namespace triax
