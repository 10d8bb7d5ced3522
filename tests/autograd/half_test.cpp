// Means and products with numbers in 16 bits: what PyTorch computes, by
// tests/reference/half_means.py.
#include <cmath>
#include <functional>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/autograd/scopes.h"

namespace triax {
namespace {

using namespace test;

constexpr double all = 1e-8;  // digits of the lists

Tensor halves(const std::vector<float>& v, const Shape& shape, DType dtype) {
  return from_host(v, shape, cpu).to(dtype).to(test_device());
}

TEST(Halves, AMeanOfValuesThatFitDoesNotOverflow) {
  struct {
    DType dtype;
    int64_t count;
    double value, seed, mean, gradient;
  } cases[] = {
      {f16, 100000, 3, 1, 3, 1.00135803e-05},   {f16, 100000, 3, 1024, 3, 0.0102386475},
      {f16, 257, 1, 1, 1, 0.00389099121},       {f16, 1000, 3, 1, 3, 0.00100040436},
      {f16, 1000000, 2, 1, 2, 1.01327896e-06},  {bf16, 100000, 3, 1, 3, 1.00135803e-05},
      {bf16, 100000, 3, 1024, 3, 0.0102539062}, {bf16, 257, 1, 1, 1, 0.00389099121},
      {bf16, 1000, 3, 1, 3, 0.000999450684},    {bf16, 1000000, 2, 1, 2, 9.983778e-07},
  };
  for (auto& c : cases) {
    SCOPED_TRACE(fmt::format("{} x {} in {}", c.count, c.value, c.dtype));
    Tensor x = full({c.count}, c.value, c.dtype, test_device());
    require_grad(x);
    Tensor y = mean(x);
    EXPECT_EQ(y.dtype(), c.dtype);
    EXPECT_EQ(y.item(), c.mean);
    backward(y, full({}, c.seed, c.dtype, test_device()));
    EXPECT_NEAR(values(grad(x))[0] / c.gradient, 1, all);
    EXPECT_EQ(values(grad(x))[0], values(grad(x)).back());
  }
}

TEST(Halves, MeansOverSomeDims) {
  Tensor x = halves({60000, 30000, 3, 60000, -50000, 0.1F, 50000, 7, -2}, {3, 3}, f16);
  expect_near(mean(x), {16672}, 0);
  expect_near(mean(x, {0}), {56672, -6660, 0.366699219}, all);
  expect_near(mean(x, {-1}, Keep::yes), {30000, 3338, 16656}, all);
  EXPECT_EQ(mean(x, {1}, Keep::yes).shape(), (Shape{3, 1}));
  EXPECT_EQ(values(mean(transpose(x, 0, 1), {1})), values(mean(x, {0})));
  expect_error([] { mean(zeros({0, 3}, f16, test_device())); }, {"mean", "no elements"});
}

TEST(Halves, MeanSquaredErrors) {
  struct {
    DType dtype;
    int64_t count;
    double x, y, loss;
  } cases[] = {
      {f16, 64, 100, 0, 10000},   {f16, 100000, 1, 0, 1},        {f16, 257, 2, 1, 1},
      {f16, 3, 300, 0, INFINITY}, {f16, 1000, 100, 0.01, 10000}, {f16, 3, 0.1, 0.3, 0.0400390625},
      {bf16, 64, 100, 0, 9984},   {bf16, 100000, 1, 0, 1},       {bf16, 257, 2, 1, 1},
      {bf16, 3, 300, 0, 90112},   {bf16, 1000, 100, 0.01, 9984}, {bf16, 3, 0.1, 0.3, 0.0405273438},
  };
  for (auto& c : cases) {
    SCOPED_TRACE(fmt::format("{} x ({} - {})^2 in {}", c.count, c.x, c.y, c.dtype));
    Tensor x = full({c.count}, c.x, c.dtype, test_device());
    Tensor loss = mse(x, full({c.count}, c.y, c.dtype, test_device()));
    if (std::isinf(c.loss)) EXPECT_EQ(loss.item(), c.loss);
    else EXPECT_NEAR(loss.item() / c.loss, 1, all);
  }
}

TEST(Halves, NumbersThatTheyCannotHoldAreNotRounded) {
  struct {
    const char* what;
    std::function<Tensor(const Tensor&)> f;
    std::vector<double> in_f16, in_bf16;
  } cases[] = {
      {"x / 100000",
       [](auto& x) { return x / 100000; },
       {0.600097656, 2.99811363e-05, -7.49826431e-05},
       {0.59765625, 3.0040741e-05, -7.48634338e-05}},
      {"x * 1e-5",
       [](auto& x) { return x * 1e-5; },
       {0.600097656, 2.99811363e-05, -7.49826431e-05},
       {0.59765625, 3.0040741e-05, -7.48634338e-05}},
      {"0.1 * x",
       [](auto& x) { return 0.1 * x; },
       {6000, 0.300048828, -0.75},
       {5984, 0.30078125, -0.75}},
      {"x / 257",
       [](auto& x) { return x / 257; },
       {233.5, 0.0116729736, -0.0291900635},
       {233, 0.0116577148, -0.0291748047}},
  };
  for (auto& c : cases)
    for (DType dtype : {f16, bf16}) {
      SCOPED_TRACE(fmt::format("{} in {}", c.what, dtype));
      auto got = values(c.f(halves({60000, 3, -7.5F}, {3}, dtype)));
      auto& expected = dtype == f16 ? c.in_f16 : c.in_bf16;
      for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i] / expected[i], 1, all) << i;
    }
  // Of these PyTorch rounds the reciprocal, too; here the quotient is the nearest.
  for (DType dtype : {f16, bf16})
    for (double number : {100000., 0.1}) {
      Tensor x = halves({60000, 3, -7.5F}, {3}, dtype);
      std::vector<double> quotients;
      for (double v : values(x)) quotients.push_back(number / v);
      EXPECT_EQ(values(number / x), values(from_host(quotients, {3}, cpu).to(dtype))) << number;
    }
}

TEST(Halves, NumbersAreRoundedInSums) {
  Tensor x = full({1}, 60000, f16, test_device()), one = full({1}, 1, bf16, test_device());
  EXPECT_EQ((x - 70000).item(), -INFINITY);
  EXPECT_EQ((one + 257).item(), 256);
  EXPECT_EQ((257 - one).item(), 255);
}

TEST(Halves, GradientsOfSuchOps) {
  Tensor x = halves({60000, 3, -7.5F}, {3}, f16);
  require_grad(x);
  auto expect = [&](const Tensor& y, double slope) {
    grad(x) = {};
    backward(sum(y));
    for (double g : values(grad(x))) EXPECT_NEAR(g / slope, 1, 3e-3);
  };
  expect(x / 100000, 1e-5);  // not 0, where 100000 is inf
  expect(x * 0.1, 0.1);
}

// Losses of logits that are not finite, and of what masks leave.

constexpr double inf = INFINITY;

TEST(Losses, AClassThatAMaskForbidsCountsNothing) {
  for (DType dtype : {f64, f32, bf16, f16}) {
    Tensor logits = from_host(std::vector<double>{-inf, 2, 3, 4, 1, -inf, 0, -inf}, {2, 4}, cpu)
                        .to(dtype)
                        .to(test_device());
    require_grad(logits);
    Tensor targets = from_host(std::vector<int32_t>{2, 0}, {2}, test_device());
    Tensor loss = cross_entropy(logits, targets);
    double first = std::log(std::exp(-1) + 1 + std::exp(1)), second = std::log(1 + std::exp(-1));
    expect_near(loss, {(first + second) / 2}, 1e-6, name(dtype));
    backward(loss);
    double a = std::exp(-1 - first), b = std::exp(-first), c = std::exp(1 - first);
    double d = std::exp(-second), e = std::exp(-1 - second);
    double tolerance = dtype == f64 || dtype == f32 ? 1e-6 : 4e-3;
    expect_near(grad(logits), {0, a / 2, (b - 1) / 2, c / 2, (d - 1) / 2, 0, e / 2, 0}, tolerance,
                name(dtype));
  }
}

TEST(Losses, OfAForbiddenTargetAreInfinite) {
  Tensor logits = from_host(std::vector<double>{-inf, 2}, {1, 2}, test_device());
  Tensor targets = from_host(std::vector<int32_t>{0}, {1}, test_device());
  EXPECT_EQ(cross_entropy(logits, targets).item(), inf);
  EXPECT_EQ(cross_entropy(logits, targets, {.smoothing = 0.1}).item(), inf);
}

// Products whose elements do not depend on how many rows there are beside theirs.

/// Returns what a form of product makes of rows x, onto or beside `rest`, and both gradients.
using Form = std::function<Tensor(const Tensor& x, const Tensor& rest)>;
Tensors results(const Form& form, const Tensor& all_x, const Tensor& all_rest, Range rows) {
  Tensor x = clone(all_x.narrow(0, rows.begin, rows.end - rows.begin));
  Tensor rest = clone(all_rest.narrow(0, rows.begin, rows.end - rows.begin));
  require_grad(x);
  require_grad(rest);
  Tensor y;
  {
    autograd::RowsAlike scope(true);
    y = form(gelu(x), rest);
  }
  backward(sum(y * rest.detach()));
  return {y.detach(), grad(x), grad(rest)};
}

TEST(RowsAlike, FewRowsHaveTheBitsOfMany) {
  for (DType dtype : {f32, bf16, f16, f64}) {
    Tensor x = filled({70, 48}, 1, dtype), rest = filled({70, 24}, 2, dtype);
    Tensor w = filled({24, 48}, 3, dtype), b = filled({24}, 4, dtype);
    Form forms[] = {[&](auto& h, auto& r) { return linear(h, w, b) + r; },
                    [&](auto& h, auto& r) { return linear_gelu(h, w, b) + r; },
                    [&](auto& h, auto& r) { return linear_onto(r, h, w, b); },
                    [&](auto& h, auto& r) { return linear_to({empty_like(r)}, h, w) + r; },
                    [&](auto& h, auto& r) { return matmul(h, w.transpose(0, 1)) + r; },
                    [&](auto& h, auto& r) {  // in a batch of one
                      Tensor one = reshape(h, {1, h.size(0), 48});
                      Tensor y = matmul(one, reshape(w, {1, 24, 48}).transpose(1, 2));
                      return reshape(y, r.shape()) + r;
                    },
                    [&](auto& h, auto& r) {
                      return recompute([&](const Tensor& t) { return linear(t, w, b); }, h) + r;
                    }};
    for (auto& form : forms) {
      Tensors whole = results(form, x, rest, {0, 70});
      for (int64_t count : {1, 2, 5, 15, 16, 31, 33, 40}) {
        Tensors part = results(form, x, rest, {20, 20 + count});
        for (size_t i = 0; i < part.size(); ++i)
          expect_bitwise(part[i], clone(whole[i].narrow(0, 20, count)),
                         std::string(name(dtype)) + " form " + std::to_string(&form - forms) +
                             " rows " + std::to_string(count) + " result " + std::to_string(i));
      }
    }
  }
}

// As ranks have them of split weights. (Tiles of AMX have another way for few columns of f32.)
TEST(RowsAlike, FewColumnsHaveTheBitsOfMany) {
  if (on_gpu()) GTEST_SKIP() << "a GPU's library fuses GELU where it can";
  autograd::RowsAlike scope(true);
  for (DType dtype : {f32, bf16, f16, f64}) {
    Tensor x = filled({40, 70}, 1, dtype), w = filled({70, 70}, 2, dtype);
    Tensor b = filled({70}, 3, dtype), dy = filled({40, 70}, 4, dtype);
    auto slice = [&](const Tensor& t, int dim, int64_t count) {
      return clone(t.narrow(dim, 20, count));
    };
    Tensor y = linear(x, w, b), h = linear_gelu(x, w, b);
    require_grad(x);
    backward(linear(x, w), dy.detach());
    for (int64_t count : {1, 2, 5, 15, 16, 31, 33, 40}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << ' ' << count);
      Tensor rows = slice(w, 0, count), bias = slice(b, 0, count), z = slice(x.detach(), 1, count);
      expect_bitwise(linear(x.detach(), rows, bias), slice(y, 1, count));
      expect_bitwise(linear_gelu(x.detach(), rows, bias), slice(h, 1, count));
      require_grad(z);
      backward(linear(z, slice(w, 1, count)), dy.detach());
      expect_bitwise(grad(z), slice(grad(x), 1, count));
    }
  }
}

}  // namespace
}  // namespace triax
