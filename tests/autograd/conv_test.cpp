// Convolutions and pools: gradients against central differences in f64, and errors with their
// messages. Values against a naive loop stand in tests/core.
#include "tests/support/expect_error.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"

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

// Values against a naive loop, gradients against central differences, and the errors.

TEST(PadOp, SurroundsWithAConstant) {
  constexpr int64_t a = 3, b = 5, before = 2, after = 1, behind = 4;
  for (DType t : {f32, f64, f16, bf16, i32, i64, u8}) {
    std::vector<double> v;
    for (int i = 0; i < a * b; ++i) v.push_back(i + 1);
    Tensor x = from_host(v, {a, b}, cpu).to(t).to(test_device());
    Tensor y =
        pad(x, {{.dim = 0, .before = before, .after = after}, {.dim = -1, .after = behind}}, 7);
    ASSERT_EQ(y.shape(), Shape({before + a + after, b + behind}));
    EXPECT_EQ(y.dtype(), t);
    auto got = y.to(cpu).to(f64).to_host<double>();
    for (int64_t i = 0; i < y.size(0); ++i)
      for (int64_t j = 0; j < y.size(1); ++j) {
        bool inside = i >= before && i < before + a && j < b;
        EXPECT_EQ(got[size_t(i * (b + behind) + j)], inside ? (i - before) * b + j + 1 : 7)
            << name(t) << " at " << i << ", " << j;
      }
  }
}

TEST(PadOp, Gradients) {
  Tensor x = filled({2, 3, 4}, 1);
  gradcheck([](const Tensors& t) { return pad(t[0], {{.dim = 1, .before = 2}}); }, {x});
  gradcheck(
      [](const Tensors& t) {
        return pad(transpose(t[0], 0, 2), {{0, 1, 2}, {2, 0, 3}, {0, 2, 1}}, 0.5) * 2;
      },
      {x});
  EXPECT_EQ(pad(x, {}).shape(), x.shape());
  EXPECT_EQ(pad(zeros({0, 2}, f32, test_device()), {{0, 1, 1}}).shape(), Shape({2, 2}));
}

TEST(PadOp, RefusesWhatItCannotPad) {
  Tensor x = filled({2, 3}, 1);
  expect_error([&] { pad(x, {{.dim = 1, .before = -1}}); },
               {"pad: -1 and 0 elements around dim 1 of [2, 3]", "expected at least 0"});
  expect_error([&] { pad(x, {{.dim = 2}}); }, {"dim 2"});
  expect_error([] { pad(Tensor(), {}); }, {"pad: an undefined tensor"});
}

// Batch norm: values against a naive loop, gradients against central differences in f64, groups and
// ranks that share statistics, errors with their messages.

struct Weights {
  Tensor gamma, beta;
  explicit Weights(int64_t channels, DType dtype = f64)
      : gamma(filled({channels}, 8, dtype)), beta(filled({channels}, 9, dtype)) {}
};

TEST(BatchNorm, ValuesAndStatisticsAreThoseOfALoop) {
  for (DType dtype : {f64, f32, bf16}) {
    Tensor x = (filled({3, 2, 2, 5}, 1, f64) + 2).to(dtype);
    Weights w(5, dtype);
    auto got = batch_norm(x, w.gamma, w.beta, {.eps = 1e-3});
    auto v = values(x), gamma = values(w.gamma), beta = values(w.beta);
    std::vector<double> expected(v.size()), mean(5), variance(5);
    for (size_t i = 0; i < v.size(); ++i) mean[i % 5] += v[i] / 12;
    for (size_t i = 0; i < v.size(); ++i) variance[i % 5] += std::pow(v[i] - mean[i % 5], 2) / 12;
    for (size_t i = 0; i < v.size(); ++i)
      expected[i] =
          (v[i] - mean[i % 5]) / std::sqrt(variance[i % 5] + 1e-3) * gamma[i % 5] + beta[i % 5];
    expect_near(got.y, expected, dtype == bf16 ? 1e-2 : dtype == f32 ? 1e-5 : 1e-12);
    expect_near(got.mean, mean, 1e-12);
    expect_near(got.variance, variance, 1e-12);
    Tensor given = batch_norm_with(
        x, w.gamma, w.beta, {got.mean.view({5}).to(f32), got.variance.view({5}).to(f32), 1e-3});
    expect_near(given, expected, dtype == bf16 ? 1e-2 : 1e-5);
  }
}

TEST(BatchNorm, Gradients) {
  Tensor x = filled({4, 3, 2}, 1) + 1;
  Weights w(2);
  for (int64_t groups : {1, 2, 4})
    gradcheck(
        [=](const Tensors& t) {
          return batch_norm(t[0], t[1], t[2], {.eps = 1e-3, .groups = groups}).y;
        },
        {x, w.gamma, w.beta});
  BatchMoments moments{filled({2}, 3), exp(filled({2}, 4)), 1e-3};
  gradcheck([=](const Tensors& t) { return batch_norm_with(t[0], t[1], t[2], moments); },
            {x, w.gamma, w.beta});
  gradcheck([](const Tensors& t) { return batch_norm(transpose(t[0], 0, 1), t[1], t[2]).y; },
            {filled({2, 6}, 1), w.gamma, w.beta});
}

TEST(BatchNorm, GroupsAreNormalisedEachByItself) {
  Tensor x = filled({6, 2, 3}, 1);
  Weights w(3);
  auto together = batch_norm(x, w.gamma, w.beta, {.groups = 3});
  EXPECT_EQ(together.mean.shape(), (Shape{3, 3}));
  for (int64_t g = 0; g < 3; ++g) {
    auto alone = batch_norm(x.narrow(0, 2 * g, 2), w.gamma, w.beta);
    expect_bitwise(together.y.narrow(0, 2 * g, 2), alone.y);
    expect_bitwise(together.variance.narrow(0, g, 1), alone.variance);
  }
}

// Two ranks with half of the rows each: what one does with all of them. They are played one after
// the other; the sums of all rows stand in for the all-reduce.
TEST(BatchNorm, RanksThatShareStatisticsAreOneGroup) {
  Tensor x = filled({4, 3, 2}, 1), dy = filled({4, 3, 2}, 2);
  Weights w(2);
  Tensor whole = x.detach(), gamma = w.gamma.detach(), beta = w.beta.detach();
  for (Tensor* t : {&whole, &gamma, &beta}) require_grad(*t);
  auto one = batch_norm(whole, gamma, beta);
  backward(one.y, dy);

  auto rows = [](const Tensor& t) { return t.contiguous().view({12, 2}); };
  Tensor forward_sums = zeros({1, 2, 2}, f64, x.device()), backward_sums = clone(forward_sums);
  backend(x).channel_sums(rows(x), rows(x), forward_sums.view({2, 2}));
  backend(x).channel_sums(rows(dy), rows(x), backward_sums.view({2, 2}));
  Tensor dgamma = zeros({2}, f64, x.device()), dbeta = clone(dgamma);
  for (int64_t rank : {0, 1}) {
    int calls = 0;
    auto sum = [&](const Tensor& sums) { copy_(sums, calls++ ? backward_sums : forward_sums); };
    Tensor part = clone(x.narrow(0, 2 * rank, 2)), g = w.gamma.detach(), b = w.beta.detach();
    for (Tensor* t : {&part, &g, &b}) require_grad(*t);
    auto half = batch_norm(part, g, b, {.ranks = 2, .sum_over_ranks = sum});
    backward(half.y, clone(dy.narrow(0, 2 * rank, 2)));
    EXPECT_EQ(calls, 2);
    expect_near(half.y, values(one.y.detach().narrow(0, 2 * rank, 2)), 1e-12);
    expect_near(half.variance, values(one.variance), 1e-12);
    expect_near(grad(part), values(grad(whole).narrow(0, 2 * rank, 2)), 1e-12);
    dgamma = dgamma + grad(g), dbeta = dbeta + grad(b);
  }
  expect_near(dgamma, values(grad(gamma)), 1e-12);
  expect_near(dbeta, values(grad(beta)), 1e-12);
}

TEST(BatchNorm, AChannelFarFromZeroKeepsItsVariance) {
  Tensor x = (filled({1000, 1}, 1) + 1e4).to(f32);
  auto got = batch_norm(x, full({1}, 1, f32, x.device()), zeros({1}, f32, x.device()));
  EXPECT_NEAR(got.variance.item(), 0.25, 0.03);
  EXPECT_NEAR(mean(got.y).item(), 0, 1e-3);
  Tensor still = full({8, 1}, 1e7, f64, x.device()), one = full({1}, 1, f64, x.device());
  EXPECT_EQ(batch_norm(still, one, one).y.view({8}).to_host<double>(), std::vector<double>(8, 1));
}

TEST(BatchNorm, Errors) {
  Tensor x = filled({4, 3}, 1);
  Weights w(3);
  expect_error([&] { batch_norm(x, w.gamma, filled({2}, 1)); },
               {"batch_norm: weight [2] for x [4, 3]", "[channels]"});
  expect_error([&] { batch_norm(x, w.gamma, w.beta, {.groups = 3}); },
               {"batch_norm: x [4, 3] in 3 groups", "as many in each"});
  expect_error([&] { batch_norm(x, w.gamma, w.beta, {.eps = 0}); }, {"eps above 0"});
  expect_error([&] { batch_norm(x.narrow(0, 0, 0), w.gamma, w.beta); }, {"rows in every group"});
  expect_error([&] { batch_norm(x, w.gamma, w.beta, {.groups = 2, .ranks = 2}); },
               {"statistics over 2 ranks of 2 groups"});
  expect_error(
      [&] {
        batch_norm_with(x, w.gamma, w.beta, {w.gamma, filled({2}, 1)});
      },
      {"batch_norm_with: ", "[channels]"});
  expect_error([&] { batch_norm(x, w.gamma.to(f32), w.beta); }, {"one dtype"});
}

}  // namespace
}  // namespace triax
