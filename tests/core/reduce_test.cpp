#include "tests/core/kernels.h"

namespace triax::test {
namespace {

class Reduce : public Kernels {};
INSTANTIATE_TEST_SUITE_P(Cpu, Reduce, every_level_and_dtype(), name_of);

struct Case {
  Shape from, to;
};
const std::vector<Case> cases = {
    {{7}, {1}},
    {{1000, 33}, {1, 33}},
    {{1000, 33}, {1000, 1}},
    {{31, 1000}, {1, 1}},
    {{40000}, {1}},
    {{3, 40000}, {3, 1}},
    {{5, 33, 31}, {5, 1, 31}},
    {{5, 33, 31}, {1, 33, 1}},
    {{3, 4, 5, 6}, {1, 4, 1, 6}},
    {{3, 4, 5, 6}, {3, 1, 5, 1}},
    {{3, 1, 5}, {1, 1, 5}},
    {{4, 5}, {4, 5}},
    {{0, 5}, {1, 5}},
    {{5, 0}, {5, 1}},
    {{0, 5}, {0, 1}},
    {{}, {}},
};

// Joins each element of x into the element of y it belongs to.
template <class F>
std::vector<double> reduced(const Tensor& x, const Shape& to, double start, F f) {
  std::vector<double> y(size_t(to.numel()), start), values = doubles(x);
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t left = int64_t(i), at = 0, step = 1;
    for (int d = to.rank() - 1; d >= 0; --d) {
      int64_t k = left % x.size(d);
      left /= x.size(d);
      if (to[d] != 1) at += k * step;
      step *= to[d];
    }
    y[size_t(at)] = f(y[size_t(at)], values[i]);
  }
  return y;
}

TEST_P(Reduce, SumsAnyDims) {
  for (const Case& c : cases)
    for (DType out : {dtype, sums})
      for (Write write : {Write::set, Write::add}) {
        SCOPED_TRACE(str(c.from) + " -> " + str(c.to));
        Tensor x = randn(c.from, dtype, 1), before = randn(c.to, out, 2);
        Tensors y = on_any_threads([&] {
          Tensor t = clone(before);
          b.sum(x, t, write);
          return Tensors{t};
        });
        std::vector<double> expected =
            reduced(x, c.to, 0, [](double a, double v) { return a + v; });
        std::vector<double> old = doubles(before);
        if (write == Write::add)
          for (size_t i = 0; i < old.size(); ++i) expected[i] += old[i];
        double n = double(x.numel()) / double(std::max<int64_t>(1, before.numel()));
        expect_near(y[0], expected, tolerance(out) + tolerance(sums) * std::sqrt(n));
      }
}

TEST_P(Reduce, MaxOfAnyDims) {
  for (const Case& c : cases) {
    SCOPED_TRACE(str(c.from) + " -> " + str(c.to));
    Tensor x = randn(c.from, dtype, 1);
    Tensors y = on_any_threads([&] {
      Tensor t = empty(c.to, dtype, cpu);
      b.max(x, t);
      return Tensors{t};
    });
    expect_near(y[0],
                reduced(x, c.to, -INFINITY, [](double a, double v) { return std::max(a, v); }), 0);
  }
}

TEST_P(Reduce, MaxKeepsNaN) {
  for (int64_t at : {0, 15, 16, 32}) {
    Tensor x = randn({33, 5}, dtype, 1), rows = empty({33, 1}, dtype, cpu),
           columns = empty({1, 5}, dtype, cpu);
    fill_(x.narrow(0, at, 1).narrow(1, 2, 1), NAN);
    b.max(x, rows);
    b.max(x, columns);
    EXPECT_TRUE(std::isnan(doubles(rows)[size_t(at)]));
    EXPECT_TRUE(std::isnan(doubles(columns)[2]));
    EXPECT_FALSE(std::isnan(doubles(columns)[1]));
  }
}

TEST_P(Reduce, RowSumsDoNotDependOnThePlace) {
  Tensor row = randn({301}, dtype, 4), first;
  for (int64_t offset = 0; offset < 40; ++offset) {
    Tensor buffer = zeros({400}, dtype, cpu), x = buffer.narrow(0, offset, 301);
    copy_(x, row);
    Tensor y = zeros({1}, sums, cpu);
    b.sum(x, y, Write::set);
    if (offset == 0) first = y;
    ASSERT_TRUE(same_bits(first, y)) << offset;
  }
}

TEST_P(Reduce, SquaresAndNonFiniteElements) {
  for (int64_t n : {0, 1, 31, 33, 1000, 50000}) {
    Tensor x = randn({n}, dtype, 5);
    Tensor start = from_host(std::vector<double>{3, 2}, {2}, cpu);
    auto run = [&] {
      Tensor out = clone(start);
      b.squares(x, out);
      return Tensors{out};
    };
    double expected = 3;
    for (double v : doubles(x)) expected += v * v;
    expect_near(on_any_threads(run)[0], {expected, 2}, 1e-12);
    if (n < 1000) continue;
    for (int64_t i = 0; i < 7; ++i)
      fill_(x.narrow(0, i * 137, 1), i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY);
    EXPECT_EQ(doubles(on_any_threads(run)[0])[1], 9);
  }
}

TEST_P(Reduce, SquaresOfTheLargestFiniteNumbersCountNothing) {
  double largest[] = {3.4028234663852886e38, 1.7976931348623157e308, 65504, 3.3895313892515355e38};
  Tensor x = full({100}, largest[int(dtype)], dtype, cpu), out = zeros({2}, f64, cpu);
  b.squares(x, out);
  EXPECT_EQ(doubles(out)[1], 0);
}

}  // namespace
}  // namespace triax::test
