#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/core/emulated/products.h"
#include "triax/core/cpu/levels.h"
#include "triax/core/random.h"

// Products of f32 out of bf16 tiles (core/cpu/products/bf16_terms.h), with emulated tiles: machines
// without AMX check the arithmetic, too.
namespace triax {
namespace {

bool has(const std::string& level) {
  auto levels = host::levels();
  return std::find(levels.begin(), levels.end(), level) != levels.end();
}

double normal(uint64_t key, uint64_t i) {
  double u = random::uniform(key, 2 * i, 0), v = random::uniform(key, 2 * i + 1, 0);
  return std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * M_PI * v);
}

enum class Kind { normal, positive, wide };
Tensor numbers(Kind kind, const Shape& shape, uint64_t key) {
  std::vector<float> v(size_t(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) {
    double x = normal(key, i);
    if (kind == Kind::positive) x = std::abs(x);
    if (kind == Kind::wide) x *= std::exp(3 * normal(key + 100, i));
    v[i] = float(x);
  }
  return from_host(v, shape, cpu);
}

/// Root of the mean square of the errors against sums in double, each as a share of the sum of
/// magnitudes.
double error_of(const Tensor& a, const Tensor& b, const Tensor& c) {
  auto x = a.to_host<float>(), y = b.to_host<float>(), z = c.to_host<float>();
  size_t m = size_t(c.size(0)), n = size_t(c.size(1)), k = size_t(a.size(1));
  double sum = 0;
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double exact = 0, magnitude = 0;
      for (size_t l = 0; l < k; ++l) {
        double term = double(x[i * k + l]) * y[l * n + j];
        exact += term;
        magnitude += std::abs(term);
      }
      double d = (z[i * n + j] - exact) / magnitude;
      sum += d * d;
    }
  return std::sqrt(sum / double(m * n));
}

void scale_(const Tensor& row, float by) {
  auto values = row.to_host<float>();
  for (float& x : values) x *= by;
  backend(cpu).copy(from_host(values, row.shape(), cpu), row);
}

class F32Tiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!has("avx512")) GTEST_SKIP() << "needs AVX-512";
  }
  static Tensor product(const Tensor& a, const Tensor& b) {
    Tensor c = full({a.size(0), b.size(1)}, NAN, f32, cpu);
    host::emulated::multiply_f32({.a = a, .b = b, .c = c});
    return c;
  }
};

TEST_F(F32Tiles, AreAsExactAsF32AtAnyDepth) {
  for (Kind kind : {Kind::normal, Kind::positive, Kind::wide})
    for (int64_t depth : {20, 384, 1536, 12000}) {
      Tensor a = numbers(kind, {33, depth}, 1), b = numbers(kind, {depth, 40}, 2);
      Tensor c = empty({33, 40}, f32, cpu);
      host::backend_of("avx512").matmul({.a = a, .b = b, .c = c});
      double expected = error_of(a, b, c), error = error_of(a, b, product(a, b));
      EXPECT_LE(error, expected) << "kind " << int(kind) << ", depth " << depth;
    }
}

TEST_F(F32Tiles, AreWhatAmxGivesBitForBit) {
  if (!has("amx")) GTEST_SKIP() << "needs AMX";
  for (Shape s : {Shape{64, 96, 800}, Shape{70, 50, 401}, Shape{33, 17, 33}})
    for (Kind kind : {Kind::normal, Kind::wide})
      for (bool turned : {false, true}) {
        Tensor a = numbers(kind, turned ? Shape{s[2], s[0]} : Shape{s[0], s[2]}, 3);
        Tensor b = numbers(kind, turned ? Shape{s[1], s[2]} : Shape{s[2], s[1]}, 4);
        if (turned) a = a.transpose(0, 1), b = b.transpose(0, 1);
        Tensor c = empty({s[0], s[1]}, f32, cpu);
        host::backend_of("amx").matmul({.a = a, .b = b, .c = c});
        EXPECT_EQ(c.to_host<float>(), product(a, b).to_host<float>()) << str(s);
      }
}

// A product that copies one number, in the first or the second pass, from either side: the results
// are those that f32 gives.
TEST_F(F32Tiles, NumbersThatTermsCannotHold) {
  for (int64_t depth : {7, 450})
    for (float x : {INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-38f, 3e-41f, 2e-34f, float(NAN)}) {
      Tensor a = full({32, 500}, 0, f32, cpu), b = full({500, 32}, 1, f32, cpu);
      backend(cpu).fill(a.narrow(1, depth, 1).narrow(0, 5, 1), x);
      Tensor left = product(a, b), right = product(b.transpose(0, 1), a.transpose(0, 1));
      auto rows = left.to_host<float>(), cols = right.to_host<float>();
      for (size_t i = 0; i < 32; ++i)
        for (size_t j = 0; j < 32; ++j) {
          float expected = i == 5 ? x : 0;
          for (float got : {rows[i * 32 + j], cols[j * 32 + i]})
            ASSERT_TRUE(got == expected || (std::isnan(expected) && std::isnan(got)))
                << x << " became " << got << " at " << i << ", " << j;
        }
    }
}

// Remainders that are denormal share words of packed strips with terms of other numbers.
TEST_F(F32Tiles, RemaindersThatAreDenormalChangeNothingElse) {
  for (int64_t m : {20, 32})
    for (int64_t k : {32, 60})
      for (float x : {0x7fc0p-149f, 0x1.00007cp-117f}) {
        Tensor a = full({m, k}, 1, f32, cpu), b = full({k, m}, 1, f32, cpu);
        backend(cpu).fill(a.narrow(1, k - 16, 1).narrow(0, 0, 1), x);
        Tensor turned = a.transpose(0, 1).contiguous();
        for (const Tensor& c :
             {product(a, b), product(turned.transpose(0, 1), b), product(b.transpose(0, 1), turned),
              product(b.transpose(0, 1), a.transpose(0, 1))}) {
          auto got = c.to_host<float>();
          double sum = 0;
          for (float value : got) sum += value;
          ASSERT_EQ(sum, double(m * m * k - m)) << m << " x " << m << ", depth " << k << ", " << x;
        }
      }
}

// Products that come near the ends of what f32 holds.
TEST_F(F32Tiles, ProductsThatTilesCannotHold) {
  for (auto [x, y] : {std::pair(0x1.234567p-60f, 0x1.654321p-60f),
                      {0x1.234567p63f, 0x1.6p63f},
                      {0x1.fffffep63f, 0x1.fffffep63f},
                      {0x1.234567p-99f, 0x1.234567p-1f}}) {
    Tensor a = full({32, 32}, 0, f32, cpu), b = full({32, 32}, 0, f32, cpu);
    backend(cpu).fill(a.narrow(1, 0, 1), x);
    backend(cpu).fill(b.narrow(0, 0, 1), y);
    for (float got : product(a, b).to_host<float>())
      ASSERT_NEAR(got / (x * y), 1, 1e-6) << x << " times " << y;
  }
}

/// Whether part [row, row + m) x [col, col + n) of `whole` is `part`, bit for bit; NaN is NaN.
bool is_part(const Tensor& part, const Tensor& whole, int64_t row, int64_t col) {
  auto x = part.to_host<float>();
  auto y = whole.narrow(0, row, part.size(0)).narrow(1, col, part.size(1)).contiguous();
  return std::ranges::equal(x, y.to_host<float>(), [](float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
  });
}

// Rows and columns of all magnitudes, so that terms hold the products of some pairs.
TEST_F(F32Tiles, AnElementDependsOnItsRowAndItsColumnAlone) {
  const float rows[] = {1, 0x1p-103f, 0x1p-60f, 0, 0x1p100f, 1, 0x1p-140f, INFINITY, 0x1p20f};
  const float cols[] = {1, 0x1p-60f, 0x1p20f, 1, 0x1p-20f, 0x1p-110f, 0, 0x1p126f};
  const int64_t m = 75, n = 70;
  for (int64_t k : {16, 450})
    for (bool turned : {false, true}) {
      Tensor a = numbers(Kind::normal, {m, k}, 5), b = numbers(Kind::wide, {n, k}, 6);
      for (int64_t i = 0; i < m; ++i)
        scale_(a.narrow(0, i, 1), rows[size_t(i * i + i / 5) % std::size(rows)]);
      for (int64_t j = 0; j < n; ++j)
        scale_(b.narrow(0, j, 1), cols[size_t(j * j + j / 7) % std::size(cols)]);
      backend(cpu).fill(a.narrow(0, 11, 1), 0x1.00007cp-117f);  // whose remainders are denormal
      backend(cpu).fill(a.narrow(0, 11, 1).narrow(1, k / 2, 1), 0x1p-99f);
      b = b.transpose(0, 1);
      if (turned) a = a.transpose(0, 1).contiguous().transpose(0, 1), b = b.contiguous();
      Tensor whole = product(a, b);
      for (int64_t height : {1, 15, 40})
        for (int64_t width : {1, 3, 35})
          for (int64_t row : {int64_t(0), int64_t(6), int64_t(11), m - height})
            for (int64_t col : {int64_t(0), int64_t(33), n - width}) {
              Tensor c = product(a.narrow(0, row, height), b.narrow(1, col, width));
              ASSERT_TRUE(is_part(c, whole, row, col))
                  << height << " x " << width << " at " << row << ", " << col << " of depth " << k;
            }
    }
}

class F32TilesWithGelu : public F32Tiles {
 protected:
  /// `before`: [m, n], where what gelu is taken of is kept.
  void check(const Tensor& before);
};
void F32TilesWithGelu::check(const Tensor& before) {
  const int64_t m = before.size(0), n = before.size(1), k = 900;
  SCOPED_TRACE(testing::Message() << n << " columns, rows " << before.strides()[0] << " apart");
  Tensor a = numbers(Kind::normal, {m, k}, 5), b = numbers(Kind::normal, {k, n}, 6);
  Tensor bias = numbers(Kind::normal, {n}, 7), plain = product(a, b);
  auto sums = plain.to_host<float>(), added = bias.to_host<float>();
  Tensor wide = full({m, n + 9}, 7, f32, cpu), turned = empty({n, m}, f32, cpu).transpose(0, 1);
  for (const Tensor& c : {wide.narrow(1, 4, n), turned}) {
    host::emulated::multiply_f32({.a = a, .b = b, .c = c, .bias = bias, .before = before});
    auto kept = before.contiguous().to_host<float>(), got = c.contiguous().to_host<float>();
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(kept[i], sums[i] + added[i % size_t(n)], 1e-4);
      double x = kept[i], gelu = x / 2 * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
      EXPECT_NEAR(got[i], gelu, 1e-5 * (1 + std::abs(gelu)));
    }
  }
  EXPECT_EQ(wide.narrow(1, 0, 4).contiguous().to_host<float>(),
            std::vector<float>(size_t(4 * m), 7));
}

TEST_F(F32TilesWithGelu, BiasAndStridedResults) {
  check(empty({40, 50}, f32, cpu));
  check(empty({70, 96}, f32, cpu));  // whole cache lines: streamed
  Tensor around = full({70, 112}, 7, f32, cpu);
  check(around.narrow(1, 16, 64));
  for (int64_t column : {0, 80})
    EXPECT_EQ(around.narrow(1, column, 16).contiguous().to_host<float>(),
              std::vector<float>(70 * 16, 7));
  check(around.narrow(1, 3, 64));  // not on cache lines
}

/// a b times gelu's slope at h, in steps.
Tensor in_steps(const Tensor& a, const Tensor& b, const Tensor& h) {
  Backend& on = host::backend_of("avx512");
  Tensor c = empty({a.size(0), b.size(1)}, a.dtype(), cpu);
  on.matmul({.a = a, .b = b, .c = c});
  on.unary_backward(Unary::gelu, h, h, c, c, Write::set);
  return c;
}

// In whole squares and cut ones, after one pass and after several.
TEST_F(F32Tiles, SlopesWithinProducts) {
  bool bf16_too = __builtin_cpu_supports("avx512bf16");
  for (auto [m, k, n] : {std::tuple{64, 96, 64}, {70, 800, 50}, {33, 401, 96}}) {
    SCOPED_TRACE(testing::Message() << m << ' ' << k << ' ' << n);
    Tensor a = numbers(Kind::normal, {m, k}, 5), b = numbers(Kind::normal, {k, n}, 6);
    Tensor h = numbers(Kind::normal, {m, n}, 7), c = full({m, n}, NAN, f32, cpu);
    host::emulated::multiply_f32({.a = a, .b = b, .c = c, .gelu_of = h});
    auto got = c.to_host<float>(), expected = in_steps(a, b, h).to_host<float>();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(expected[i], got[i], 2e-4) << i;
    if (!bf16_too) continue;
    Tensor narrow = full({m, n}, NAN, bf16, cpu), x = a.to(bf16), y = b.to(bf16), z = h.to(bf16);
    host::emulated::multiply_bf16({.a = x, .b = y, .c = narrow, .gelu_of = z});
    got = narrow.to(f32).to_host<float>();
    expected = in_steps(x, y, z).to(f32).to_host<float>();
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(expected[i], got[i], 0x1p-6 * (0.1 + std::abs(expected[i]))) << i;
  }
}

TEST_F(F32Tiles, MatricesOfABatch) {
  Tensor a = numbers(Kind::normal, {3, 33, 40}, 5), b = numbers(Kind::normal, {3, 40, 35}, 6);
  Tensor c = full({3, 33, 35}, NAN, f32, cpu);
  host::emulated::multiply_f32({.a = a, .b = b, .c = c});
  for (int64_t i = 0; i < 3; ++i) {
    auto of = [&](const Tensor& x) {
      return x.narrow(0, i, 1).contiguous().view({x.size(1), x.size(2)});
    };
    EXPECT_EQ(of(c).to_host<float>(), product(of(a), of(b)).to_host<float>());
  }
}

// The bits of a product that is rounded afterwards.
TEST_F(F32Tiles, RoundSumsToMultiplesOfAUnit) {
  FixedPoint f{0x1p-10, 0x1p10};
  for (auto [m, k, n] : {std::tuple{64, 384, 96}, {70, 33, 45}})
    for (DType dtype : {f32, bf16}) {
      if (dtype == bf16 && !__builtin_cpu_supports("avx512bf16")) continue;
      Tensor a = numbers(Kind::normal, {m, k}, 5).to(dtype), c = full({m, n}, 1, f64, cpu);
      Tensor b = numbers(Kind::normal, {k, n}, 6).to(dtype), expected = clone(c);
      Matmul p{.a = a, .b = b, .c = c, .write = Write::add, .rounding = &f};
      if (dtype == f32) host::emulated::multiply_f32(p);
      else host::emulated::multiply_bf16(p);
      Tensor apart = dtype == f32 ? product(a, b) : empty({m, n}, f32, cpu);
      if (dtype == bf16) backend(cpu).matmul({a, b, apart});
      backend(cpu).accumulate_fixed(apart, f, expected, Write::add);
      auto got = c.to_host<double>(), one = expected.to_host<double>();
      for (size_t i = 0; i < one.size(); ++i)
        ASSERT_NEAR(one[i], got[i], dtype == f32 ? 0 : f.unit);
    }
}

TEST_F(F32Tiles, AddToWhatIsThereInEveryPass) {
  Tensor a = numbers(Kind::normal, {40, 900}, 5), b = numbers(Kind::normal, {900, 70}, 6);
  Tensor once = product(a, b), c = full({40, 70}, 0, f32, cpu);
  for (int i = 0; i < 2; ++i)
    host::emulated::multiply_f32({.a = a, .b = b, .c = c, .write = Write::add});
  auto sum = c.to_host<float>(), one = once.to_host<float>();
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], 2 * one[i], 1e-4);
}

}  // namespace
}  // namespace triax
