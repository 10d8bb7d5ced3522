#include "triax/core/numbers/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "tests/core/kernels.h"

namespace triax::test {
namespace {

/// f32 numbers over 2^-30 to 1, of both signs.
std::vector<float> wide(int64_t count, uint64_t key) {
  std::vector<float> all;
  for (uint64_t i = 0; i < uint64_t(count); ++i)
    all.push_back(float(random::normal(key, i) * std::exp2(-30 * random::uniform(key + 1, i, 0))));
  return all;
}

uint64_t bits(double x) { return std::bit_cast<uint64_t>(x); }

/// Sums of pieces of any size, in an order of their own, and then the sum of these.
template <class Add> double sum_in_pieces(std::vector<float> terms, uint64_t key, Add add) {
  std::vector<double> order(terms.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = random::uniform(key, i, 0);
  std::vector<size_t> at(terms.size());
  std::iota(at.begin(), at.end(), size_t{0});
  std::ranges::sort(at, {}, [&](size_t i) { return order[i]; });
  double all = 0, piece = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    piece = add(piece, terms[at[i]]);
    if (order[i] < 0.1) all += piece, piece = 0;
  }
  return all + piece;
}

TEST(FixedPoint, NoOrderAndNoGroupingChangesABit) {
  auto terms = wide(1000, 5);
  auto f = FixedPoint::of(0x1p-40, 1000);
  auto rounded = [&](double sum, float x) { return sum + f.round(x); };
  auto plain = [](double sum, float x) { return sum + x; };
  double first = sum_in_pieces(terms, 1, rounded), exact = 0;
  int same = 0;
  for (uint64_t key = 1; key <= 2000; ++key) {
    ASSERT_EQ(bits(sum_in_pieces(terms, key, rounded)), bits(first)) << key;
    same += bits(sum_in_pieces(terms, key, plain)) == bits(sum_in_pieces(terms, 1, plain));
  }
  EXPECT_LT(same, 1000) << "f64 alone would do";
  for (float x : terms) exact += double(x);
  EXPECT_NEAR(first, exact, 1000 * 0x1p-41);
}

TEST(FixedPoint, RoundsToTheNearestMultipleAndRefusesWhatItsSumsCannotHold) {
  auto f = FixedPoint::of(0x1p-4, 0x1p10);
  EXPECT_EQ(f.round(1.03), 1.0);
  EXPECT_EQ(f.round(-1.04), -1.0625);
  EXPECT_EQ(f.round(0x1p-5), 0);  // a tie, to even
  EXPECT_EQ(f.round(3 * 0x1p-5), 0.125);
  EXPECT_EQ(f.largest, 0x1p38);  // 2^10 of them are 2^52 units
  EXPECT_EQ(f.round(0x1p38 - 0x1p-4), 0x1p38 - 0x1p-4);
  for (double x : {0x1p38, -0x1p38, double(INFINITY), -double(INFINITY), double(NAN)})
    EXPECT_TRUE(std::isnan(f.round(x))) << x;
  EXPECT_EQ(FixedPoint::of(1, 1).largest, 0x1p51);
}

TEST(WideSum, HoldsNumbersOfAllSizesInAnyOrder) {
  std::vector<double> terms;
  for (uint64_t i = 0; i < 3000; ++i)
    terms.push_back(random::normal(1, i) * std::exp2(100 * random::uniform(2, i, 0) - 60));
  double up[WideSum::words] = {}, down[WideSum::words] = {}, halves[2][WideSum::words] = {};
  long double exact = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    WideSum::add(terms[i], up);
    WideSum::add(terms[terms.size() - 1 - i], down);
    WideSum::add(terms[i], halves[terms[i] > 0]);
    exact += terms[i];
  }
  for (int w = 0; w < WideSum::words; ++w) {
    EXPECT_EQ(bits(up[w]), bits(down[w])) << w;
    EXPECT_EQ(bits(up[w]), bits(halves[0][w] + halves[1][w])) << w;
  }
  EXPECT_NEAR(WideSum::value(up), double(exact), 1e-15 * std::fabs(double(exact)));
  double tiny[WideSum::words] = {};
  for (int i = 0; i < 1000; ++i) WideSum::add(0x1p-90, tiny);
  EXPECT_EQ(WideSum::value(tiny), 1000 * 0x1p-90);
  WideSum::add(0x1p52, tiny);
  EXPECT_TRUE(std::isnan(WideSum::value(tiny)));
}

class FixedPointKernels : public Kernels {};
INSTANTIATE_TEST_SUITE_P(Cpu, FixedPointKernels, every_level_and_dtype(), name_of);

TEST_P(FixedPointKernels, RoundWhatTheyAccumulate) {
  auto f = FixedPoint::of(0x1p-20, 4);
  for (int64_t terms : {1, 3})
    for (int64_t n : {0, 1, 31, 1000, 40001}) {
      Tensor x = randn({terms, n}, dtype, 1), before = zeros({n}, f64, cpu);
      b.accumulate_fixed(randn({n}, dtype, 2), f, before, Write::set);
      if (n == 1000) fill_(x.narrow(0, terms - 1, 1).narrow(1, 900, 1), NAN);
      for (Write write : {Write::set, Write::add}) {
        Tensors y = on_any_threads([&] {
          Tensor to = clone(before);
          b.accumulate_fixed(x, f, to, write);
          return Tensors{to};
        });
        auto all = doubles(x), old = doubles(before), got = doubles(y[0]);
        for (size_t i = 0; i < got.size(); ++i) {
          double sum = 0;
          for (size_t t = 0; t < size_t(terms); ++t) sum += f.round(all[t * size_t(n) + i]);
          double expected = sum + (write == Write::add ? old[i] : 0);
          if (std::isnan(expected)) ASSERT_TRUE(std::isnan(got[i])) << i;
          else ASSERT_EQ(got[i], expected) << i;
        }
      }
    }
}

enum Slices { apart, beside, added };

/// a b, made beside rows and columns of zeros, so that none of the ways for few of them is taken.
Tensor product_of_many(Backend& on, const Tensor& a, const Tensor& b) {
  constexpr int64_t many = 16;
  int64_t slices = a.size(0), m = a.size(1), n = b.size(2);
  Tensor rows = zeros({slices, std::max(m, many), a.size(2)}, a.dtype(), cpu);
  Tensor columns = zeros({slices, b.size(1), std::max(n, many)}, a.dtype(), cpu);
  Tensor c = empty({slices, rows.size(1), columns.size(2)}, accumulator(a.dtype()), cpu);
  copy_(rows.narrow(1, 0, m), a);
  copy_(columns.narrow(2, 0, n), b);
  on.matmul({rows, columns, c});
  return c.narrow(1, 0, m).narrow(2, 0, n).contiguous();
}

// Whole and cut tiles, one pass and several, slices beside each other or added up: the bits of a
// product of many rows and columns that is rounded afterwards, not finite and too large ones too.
TEST_P(FixedPointKernels, ProductsAreRoundedAsTheirSumsAre) {
  FixedPoint f{0x1p-20, 0x1p10};
  for (auto [slices, m, k, n] : {std::tuple{1, 64, 384, 96},
                                 {1, 70, 33, 45},
                                 {1, 33, 800, 64},
                                 {1, 1, 40, 33},
                                 {1, 5, 800, 64},
                                 {1, 64, 800, 5},
                                 {2, 1, 800, 33},
                                 {3, 40, 64, 32},
                                 {4, 200, 96, 170},
                                 {2, 40, 500, 48},
                                 {2, 5, 7, 1}})
    for (Slices c_has : {apart, beside, added})
      for (Write write : {Write::set, Write::add}) {
        SCOPED_TRACE(testing::Message()
                     << slices << ' ' << m << ' ' << k << ' ' << n << ' ' << c_has);
        Tensor a = randn({slices, k, m}, dtype, 1).transpose(1, 2);
        Tensor y = c_has == beside ? randn({slices, n, k}, dtype, 2).transpose(1, 2)
                                   : randn({slices, k, n}, dtype, 2);
        if (m > 1) fill_(a.narrow(1, m / 2, 1).narrow(2, k / 2, 1), NAN);
        if (m > 1) fill_(a.narrow(1, m - 1, 1), 3e4);
        Shape shape{slices, m, n};
        Tensor old = randn({c_has == added ? 1 : slices, m, n}, f64, 3);
        Tensor expected = clone(old);
        b.accumulate_fixed(product_of_many(b, a, y), f, expected, write);
        Tensors got = on_any_threads([&] {
          Tensor c = c_has == beside ? clone(old.transpose(0, 1)).transpose(0, 1) : clone(old);
          b.matmul({.a = a, .b = y, .c = c.expand(shape), .write = write, .rounding = &f});
          return Tensors{c.contiguous()};
        });
        auto one = doubles(expected), other = doubles(got[0]);
        int64_t finite = 0;
        for (size_t i = 0; i < one.size(); ++i, finite += std::isfinite(one[i - 1])) {
          if (std::isnan(one[i])) ASSERT_TRUE(std::isnan(other[i])) << i;
          else ASSERT_EQ(bits(one[i]), bits(other[i])) << i;
        }
        EXPECT_GE(finite, expected.numel() / 3);
      }
}

/// Every element, NaN too.
bool same(const Tensor& x, const Tensor& y) {
  return std::ranges::equal(doubles(x), doubles(y), [](double a, double b) {
    return bits(a) == bits(b) || (std::isnan(a) && std::isnan(b));
  });
}

/// A backward product onto old values, one with gelu's slope, and forward ones with all there is.
Tensors all_forms(Backend& on, const Tensor& a, const Tensor& b, const Tensor& at,
                  const Tensor& bias) {
  Tensors made;
  for (int i = 0; i < 5; ++i) made.push_back(clone(at));
  on.matmul({.a = a, .b = b, .c = made[0], .write = Write::add});
  on.matmul({.a = a, .b = b, .c = made[1], .gelu_of = at.contiguous()});
  on.matmul({.a = a, .b = b, .c = made[2], .bias = bias, .before = made[3]});
  on.matmul_onto({.a = a, .b = b, .c = made[4], .bias = bias}, at.contiguous());
  return made;
}

// Rows of several samples and columns of several slices in one product, and some more; weights as
// forward and as backward have them.
TEST_P(FixedPointKernels, RowsAndColumnsDoNotDependOnHowManyThereAre) {
  constexpr int64_t block = Matmul::block;
  for (auto [m, k, n] : {std::tuple{block, int64_t{40}, block},
                         {3 * block, 15, 2 * block},
                         {block, 400, 3 * block},
                         {2 * block, 801, block},
                         {8 * block, 65, block}})
    for (bool turned : {false, true}) {
      SCOPED_TRACE(testing::Message() << m << ' ' << k << ' ' << n << ' ' << turned);
      int64_t rows = 3 * m + 1, cols = 3 * n + 5;
      Tensor a = randn({rows, k}, dtype, 1), at = randn({rows, cols}, dtype, 3);
      Tensor w = turned ? randn({cols, k}, dtype, 2).transpose(0, 1) : randn({k, cols}, dtype, 2);
      Tensor bias = randn({cols}, dtype, 4);
      fill_(a.narrow(0, m, 1), 1e30);  // small numbers and large ones do not disturb others
      if (dtype != f16) fill_(a.narrow(0, 2 * m, 1), 1e-36);
      Tensors whole = all_forms(b, a, w, at, bias);
      for (int64_t part = 0; part < 9; ++part) {
        int64_t row = part / 3 * m + part % 2, col = part % 3 * n + part % 2 * 5;
        auto piece = [=, m = m, n = n](const Tensor& x) {
          return x.narrow(0, row, m).narrow(1, col, n);
        };
        Tensors one = all_forms(b, a.narrow(0, row, m), w.narrow(1, col, n), piece(at),
                                bias.narrow(0, col, n));
        for (size_t form = 0; form < one.size(); ++form)
          EXPECT_TRUE(same(one[form], piece(whole[form]).contiguous())) << form;
      }
    }
}

// A slice of ZeRO begins at any multiple of 16 elements, and ends at one or with zeros.
TEST_P(FixedPointKernels, SquaresDoNotDependOnTheCut) {
  constexpr int64_t n = 80016;
  Tensor x = randn({n}, dtype, 3, 1e-3);
  auto squares = [&](std::vector<int64_t> cuts) {
    Tensors out = on_any_threads([&] {
      Tensor to = zeros({WideSum::words + 1}, f64, cpu);
      for (size_t i = 0; i + 1 < cuts.size(); ++i)
        b.squares_fixed(x.narrow(0, cuts[i], cuts[i + 1] - cuts[i]), to);
      return Tensors{to};
    });
    return doubles(out[0]);
  };
  auto whole = squares({0, n});
  double exact = 0;
  for (double v : doubles(x)) exact += v * v;
  EXPECT_NEAR(WideSum::value(whole.data()), exact, 1e-10 * exact);
  EXPECT_EQ(whole.back(), 0);
  for (auto& cuts : std::vector<std::vector<int64_t>>{
           {0, 16, n}, {0, 16400, 32000, n}, {0, n - 16, n}, {0, 48, 64, 40000, 40016, n}})
    EXPECT_EQ(squares(cuts), whole);
  fill_(x.narrow(0, 7, 1), INFINITY);
  fill_(x.narrow(0, 70000, 2), NAN);
  EXPECT_EQ(squares({0, n}).back(), 3);
  EXPECT_EQ(squares({0, 32, n}).back(), 3);
}

}  // namespace
}  // namespace triax::test
