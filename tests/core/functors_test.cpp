#include "tests/core/kernels.h"
#include "triax/core/functors/unary.h"

namespace triax::test {
namespace {

// Every `step`-th float, both signs, infinities and NaNs included.
Tensor many_floats(uint32_t step) {
  std::vector<float> values;
  for (uint64_t u = 0; u <= 0xffffffffu; u += step) values.push_back(bit_cast<float>(uint32_t(u)));
  for (float v : {0.f, -0.f, INFINITY, -INFINITY, NAN, 1.f, 88.7228f, 88.7229f, 88.8f, -86.9f,
                  -87.f, -87.5f, 0x1p-126f, 0x1p-149f, 0.625f, -0.625f, 3.4e38f, -3.4e38f})
    values.push_back(v);
  return from_host(values, {int64_t(values.size())}, cpu);
}

// Distance from the exact value in units of the result's last place.
double ulps(float got, double exact) {
  float rounded = float(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(rounded) || rounded == 0) return got == rounded ? 0 : 1e9;
  double place = std::ldexp(1.0, std::max(std::ilogb(rounded), -126) - 23);
  return std::fabs(double(got) - exact) / place;
}

void expect_within_ulps(Backend& b, Unary op, double (*exact)(double), double bound) {
  Tensor x = many_floats(4099), y = empty_like(x);
  b.unary(op, x, y);
  const float *in = x.data<float>(), *out = y.data<float>();
  double worst = 0;
  int64_t at = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    double e = ulps(out[i], exact(double(in[i])));
    if (e > worst) worst = e, at = i;
  }
  EXPECT_LE(worst, bound) << "at " << in[at] << ": " << out[at];
}

class Accuracy : public testing::TestWithParam<std::string> {
 protected:
  Backend& b = host::backend_of(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Cpu, Accuracy, testing::ValuesIn(host::levels()));

TEST_P(Accuracy, Exp) {
  expect_within_ulps(
      b, unary_id<functors::Exp>(), [](double x) { return x < -86.99 ? 0 : std::exp(x); }, 2);
}
TEST_P(Accuracy, Log) {
  expect_within_ulps(
      b, unary_id<functors::Log>(), [](double x) { return std::log(x); }, 2);
}
TEST_P(Accuracy, Tanh) {
  expect_within_ulps(
      b, unary_id<functors::Tanh>(), [](double x) { return std::tanh(x); }, 3);
}

TEST(Functors, ErfIsNearAndOdd) {
  Tensor x = many_floats(4099);
  for (int64_t i = 0; i < x.numel(); ++i) {
    float v = x.data<float>()[i], y = fn::erf(v);
    ASSERT_EQ(std::isnan(y), std::isnan(v));
    if (std::isnan(v)) continue;
    ASSERT_NEAR(y, std::erf(double(v)), 3e-7) << v;
    ASSERT_EQ(fn::erf(-v), -y);
  }
}

template <class F> class Slope : public testing::Test {};
struct FunctorName {
  template <class F> static std::string GetName(int) { return F::name; }
};
TYPED_TEST_SUITE(Slope, functors::Unary::in<testing::Types>, FunctorName);

TYPED_TEST(Slope, IsTheDerivative) {
  using F = TypeParam;
  for (double x : {0.2, 0.9, 1.7, 4.}) {
    double slope = (F::forward(x + 1e-6) - F::forward(x - 1e-6)) / 2e-6;
    EXPECT_NEAR(F::slope(x, F::forward(x)), slope, 1e-7 * (1 + std::fabs(slope))) << "at " << x;
  }
}

// What a pattern of 1 + exponent + mantissa bits means, by the definition.
double decode(uint32_t bits, int exponent, int mantissa) {
  int bias = (1 << (exponent - 1)) - 1, e = int(bits >> mantissa) & ((1 << exponent) - 1);
  double m = double(bits & ((1u << mantissa) - 1)) / double(1 << mantissa);
  double sign = bits >> (exponent + mantissa) ? -1 : 1;
  if (e == (1 << exponent) - 1) return m == 0 ? sign * INFINITY : NAN;
  return sign * (e ? std::ldexp(1 + m, e - bias) : std::ldexp(m, 1 - bias));
}

template <class T> void check_all_patterns(int exponent, int mantissa) {
  for (uint32_t u = 0; u < 65536; ++u) {
    T x;
    x.bits = uint16_t(u);
    double exact = decode(u, exponent, mantissa);
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(float(x))) << u;
      ASSERT_TRUE(std::isnan(float(T(float(x))))) << u;
      continue;
    }
    ASSERT_EQ(double(float(x)), exact) << u;
    ASSERT_EQ(std::signbit(float(x)), u >= 32768) << u;
    ASSERT_EQ(T(float(x)).bits, u);
  }
}

// Between neighbours: the middle goes to the even one, either side of it to the nearer.
template <class T> void check_rounding(uint32_t infinity, int exponent, int mantissa) {
  for (uint32_t u = 0; u < infinity; ++u)
    for (uint32_t sign : {0u, 0x8000u}) {
      double low = decode(u, exponent, mantissa), high = decode(u + 1, exponent, mantissa);
      if (u + 1 == infinity) high = 2 * low - decode(u - 1, exponent, mantissa);
      float middle = float((low + high) / 2);
      ASSERT_EQ(double(middle), (low + high) / 2);  // exact in f32
      float s = sign ? -1.f : 1.f;
      ASSERT_EQ(T(s * middle).bits, (u + (u & 1)) | sign) << u;
      ASSERT_EQ(T(s * std::nextafter(middle, 0.f)).bits, u | sign) << u;
      ASSERT_EQ(T(s * std::nextafter(middle, INFINITY)).bits, (u + 1) | sign) << u;
    }
}

TEST(Half, AllPatterns) { check_all_patterns<Half>(5, 10); }
TEST(Half, Rounding) { check_rounding<Half>(0x7c00, 5, 10); }
TEST(BFloat16, AllPatterns) { check_all_patterns<BFloat16>(8, 7); }
TEST(BFloat16, Rounding) { check_rounding<BFloat16>(0x7f80, 8, 7); }
TEST(Half, Extremes) {
  EXPECT_EQ(Half(1e30f).bits, 0x7c00);
  EXPECT_EQ(Half(-INFINITY).bits, 0xfc00);
  EXPECT_EQ(Half(1e-30f).bits, 0);
  EXPECT_EQ(BFloat16(3.4028235e38f).bits, 0x7f80);
  EXPECT_EQ(BFloat16(INFINITY).bits, 0x7f80);
}

}  // namespace
}  // namespace triax::test
