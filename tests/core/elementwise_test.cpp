#include "tests/core/kernels.h"
#include "triax/core/functors/binary.h"
#include "triax/core/functors/unary.h"

namespace triax::test {
namespace {

class Elementwise : public Kernels {};
INSTANTIATE_TEST_SUITE_P(Cpu, Elementwise, every_level_and_dtype(), name_of);

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_erf(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2)); }
double silu(double x) { return x * sigmoid(x); }
double slope_of(double (*f)(double), double x) { return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5; }

struct Case {
  const char* name;
  Unary op;
  double (*f)(double);
  bool positive;  // defined for positive numbers only
};
template <class F> Case of(double (*f)(double), bool positive = false) {
  return {F::name, unary_id<F>(), f, positive};
}

std::vector<Case> cases() {
  using namespace functors;
  return {
      of<Neg>([](double x) { return -x; }),
      of<Exp>([](double x) { return std::exp(x); }),
      of<Log>([](double x) { return std::log(x); }, true),
      of<Sqrt>([](double x) { return std::sqrt(x); }, true),
      of<Tanh>([](double x) { return std::tanh(x); }),
      of<Sigmoid>(sigmoid),
      of<Abs>([](double x) { return std::fabs(x); }),
      of<Softplus>([](double x) { return std::log1p(std::exp(x)); }),
      of<Relu>([](double x) { return x > 0 ? x : 0; }),
      of<Gelu>(gelu),
      of<GeluErf>(gelu_erf),
      of<Silu>(silu),
  };
}

Tensor input(const Case& c, int64_t n, DType dtype) {
  Tensor x = randn({n}, f64, 7, 2);
  for (int64_t i = 0; c.positive && i < n; ++i)
    x.data<double>()[i] = std::fabs(x.data<double>()[i]) + 0.25;
  return x.to(dtype);
}

TEST_P(Elementwise, UnaryEqualsTheFormula) {
  for (const Case& c : cases())
    for (int64_t n : {0, 1, 31, 33, 1000, 40000}) {
      SCOPED_TRACE(c.name);
      Tensor x = input(c, n, dtype), in_place = clone(x);
      Tensors y = on_any_threads([&] {
        Tensor out = empty_like(x);
        b.unary(c.op, x, out);
        return Tensors{out};
      });
      std::vector<double> expected = doubles(x);
      for (double& v : expected) v = c.f(v);
      expect_near(y[0], expected, within);
      b.unary(c.op, in_place, in_place);
      EXPECT_TRUE(same_bits(in_place, y[0]));
    }
}

TEST_P(Elementwise, UnaryBackwardIsTheSlope) {
  for (const Case& c : cases())
    for (int64_t n : {0, 1, 33, 1000})
      for (Write write : {Write::set, Write::add}) {
        SCOPED_TRACE(c.name);
        Tensor x = input(c, n, dtype), y = empty_like(x), dy = randn({n}, dtype, 8);
        b.unary(c.op, x, y);
        Tensor before = randn({n}, dtype, 9), dx = clone(before);
        b.unary_backward(c.op, x, y, dy, dx, write);
        std::vector<double> expected = doubles(x), up = doubles(dy), old = doubles(before);
        for (size_t i = 0; i < expected.size(); ++i)
          expected[i] = (write == Write::add ? old[i] : 0) + up[i] * slope_of(c.f, expected[i]);
        expect_near(dx, expected, std::max(3 * within, 1e-8));  // y itself is rounded
      }
}

TEST_P(Elementwise, SlopesReadOnlyWhatTheyUse) {
  Tensor x = randn({100}, dtype, 1), dy = randn({100}, dtype, 2), y = empty_like(x);
  Tensor with = empty_like(x), without = empty_like(x);
  b.unary(unary_id<functors::Gelu>(), x, y);
  b.unary_backward(unary_id<functors::Gelu>(), x, y, dy, with, Write::set);
  b.unary_backward(unary_id<functors::Gelu>(), x, {}, dy, without, Write::set);
  EXPECT_TRUE(same_bits(with, without));
  b.unary_backward(unary_id<functors::Tanh>(), {}, y, dy, without, Write::set);
  b.unary_backward(unary_id<functors::Tanh>(), x, y, dy, with, Write::set);
  EXPECT_TRUE(same_bits(with, without));
}

TEST_P(Elementwise, AbsHasNoNegativeZero) {
  for (double zero : {0., -0.}) {
    Tensor x = full({40}, zero, dtype, cpu), y = empty_like(x);
    b.unary(unary_id<functors::Abs>(), x, y);
    EXPECT_FALSE(std::signbit(doubles(y)[0]) || std::signbit(doubles(y)[39])) << zero;
  }
}

TEST_P(Elementwise, SoftplusKeepsWhatIsSmallAndWhatIsLarge) {
  std::vector<double> in{-30, -20, -16.7, -1e-3, 0, 20, 100, 1e4, INFINITY, -INFINITY};
  Tensor x = from_host(in, {int64_t(in.size())}, cpu).to(dtype), y = empty_like(x);
  b.unary(unary_id<functors::Softplus>(), x, y);
  std::vector<double> expected = doubles(x), found = doubles(y);
  for (size_t i = 0; i < in.size(); ++i) {
    double v = expected[i], right = v > 0 ? v + std::log1p(std::exp(-v)) : std::log1p(std::exp(v));
    if (std::isinf(right) || right == 0) EXPECT_EQ(found[i], right) << v;
    else EXPECT_NEAR(found[i], right, 2 * within * right + (dtype == f16 ? 0x1p-24 : 0)) << v;
  }
  fill_(x, NAN);
  b.unary(unary_id<functors::Softplus>(), x, y);
  EXPECT_TRUE(std::isnan(doubles(y)[0]));
}

// ZeRO equals DDP bit for bit only if an element's bits do not depend on its place in a buffer.
TEST_P(Elementwise, BitsDoNotDependOnThePlace) {
  const int64_t n = 67;
  for (const Case& c : cases())
    for (double value : {0.3, 1.7, 2.9}) {
      SCOPED_TRACE(c.name);
      Tensor x = full({n}, value, dtype, cpu), y = empty_like(x), dx = empty_like(x);
      for (int64_t offset = 0; offset < n; ++offset) {
        Tensor from = x.narrow(0, offset, n - offset), to = y.narrow(0, offset, n - offset);
        b.unary(c.op, from, to);
        Tensor slope = dx.narrow(0, offset, n - offset);
        b.unary_backward(c.op, from, to, from, slope, Write::set);
        for (int64_t i = 1; i < n - offset; ++i) {
          ASSERT_TRUE(same_bits(to.narrow(0, i, 1), to.narrow(0, 0, 1))) << offset << ' ' << i;
          ASSERT_TRUE(same_bits(slope.narrow(0, i, 1), slope.narrow(0, 0, 1)));
        }
        ASSERT_TRUE(same_bits(to.narrow(0, 0, 1), y.narrow(0, 0, 1)));
      }
    }
}

struct Pair {
  Tensor a, b;  // before they are expanded
};

std::vector<Pair> pairs(DType t) {
  return {{randn({3, 5, 33}, t, 1), randn({3, 5, 33}, t, 2)},
          {randn({3, 5, 33}, t, 1), randn({33}, t, 2)},
          {randn({3, 5, 33}, t, 1), randn({3, 5, 1}, t, 2)},
          {randn({1}, t, 1), randn({5, 33}, t, 2)},
          {randn({5, 1}, t, 1), randn({1, 33}, t, 2)},
          {randn({33, 5}, t, 1).transpose(0, 1), randn({5, 33}, t, 2)},
          {randn({4, 31, 8}, t, 1).narrow(1, 3, 9), randn({8, 9}, t, 2).transpose(0, 1)},
          {randn({0, 4}, t, 1), randn({4}, t, 2)},
          {randn({}, t, 1), randn({}, t, 2)},
          {randn({100, 700}, t, 1), randn({700}, t, 2)}};
}

TEST_P(Elementwise, BinaryExpandsItsOperands) {
  for (const Pair& p : pairs(dtype)) {
    Shape shape = broadcast("test", p.a.shape(), p.b.shape());
    std::vector<double> a = doubles(p.a.expand(shape)), c = doubles(p.b.expand(shape));
    auto run = [&](Binary op, auto f) {
      Tensors y = on_any_threads([&] {
        Tensor out = empty(shape, dtype, cpu);
        b.binary(op, p.a.expand(shape), p.b.expand(shape), out);
        return Tensors{out};
      });
      std::vector<double> expected(a.size());
      for (size_t i = 0; i < a.size(); ++i) expected[i] = f(a[i], c[i]);
      expect_near(y[0], expected, within);
    };
    run(binary_id<functors::Add>(), [](double x, double y) { return x + y; });
    run(binary_id<functors::Sub>(), [](double x, double y) { return x - y; });
    run(binary_id<functors::Mul>(), [](double x, double y) { return x * y; });
    run(binary_id<functors::Div>(), [](double x, double y) { return x / y; });
    run(binary_id<functors::Equal>(), [](double x, double y) { return x == y; });
  }
}

TEST_P(Elementwise, WherePicks) {
  Tensor mask = empty({1, 7, 33}, u8, cpu);
  for (int i = 0; i < 231; ++i) mask.data<uint8_t>()[i] = uint8_t(i % 3 == 0 ? 5 : 0);
  Tensor a = randn({4, 7, 33}, dtype, 1), c = randn({33}, dtype, 2), y = empty_like(a);
  b.where(mask.expand(a.shape()), a, c.expand(a.shape()), y);
  std::vector<double> expected = doubles(a), other = doubles(c);
  for (size_t i = 0; i < expected.size(); ++i)
    if (i % 231 % 3) expected[i] = other[i % 33];
  expect_near(y, expected, 0);
  Tensor dense = empty_like(a);
  b.where(clone(mask.expand(a.shape())), a, clone(c.expand(a.shape())), dense);
  EXPECT_TRUE(same_bits(y, dense));
}

TEST_P(Elementwise, DropoutMasksByPosition) {
  for (int64_t column : {0, 1, 6, 255})
    for (int64_t width : {1, 31, 300}) {
      random::Mask mask{0.3f, 99, 12, column};
      Tensor x = randn({50, width}, dtype, 3);
      Tensors y = on_any_threads([&] {
        Tensor out = empty_like(x);
        b.dropout(x, mask, out);
        return Tensors{out};
      });
      std::vector<double> expected = doubles(x);
      for (int64_t i = 0; i < x.numel(); ++i)
        expected[size_t(i)] *= double(mask.at(i / width, i % width));
      expect_near(y[0], expected, within);
    }
}

}  // namespace
}  // namespace triax::test
