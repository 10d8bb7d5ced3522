// Batch norm: values against a naive loop, gradients against central differences in f64, groups and
// ranks that share statistics, errors with their messages.
#include "autograd/backward.h"
#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"

namespace triax {
namespace {

using namespace test;

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
