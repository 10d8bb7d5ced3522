#pragma once
#include <cstddef>
#include <cstdint>

#include "triax/core/numbers/half.h"

// The functions of elementwise formulas, for every backend. Without branches, so that loops over
// them vectorise, and without library calls in f32, so that an element's bits never depend on its
// place in a buffer.

namespace triax {

namespace fn {

TRIAX_HD float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__CUDACC__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
TRIAX_HD double fma(double a, double b, double c) {
#if defined(__FMA__) || defined(__CUDACC__)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}
/// b where either is NaN.
template <class T> TRIAX_HD T max(T a, T b) { return a > b ? a : b; }
template <class T> TRIAX_HD T min(T a, T b) { return a < b ? a : b; }
template <class T> TRIAX_HD T select(bool c, T a, T b) { return c ? a : b; }

/// Returns the polynomial with these coefficients, the highest first (Horner).
template <class... Rest> TRIAX_HD float polynomial(float x, float first, Rest... rest) {
  ((first = fma(first, x, rest)), ...);
  return first;
}

/// Returns e^x within 2 ulp; below -87 zero, above 88.72 infinity, NaN stays (Cephes' polynomial).
TRIAX_HD float exp(float x) {
  float c = min(89.f, max(-87.4f, x));  // in this order both let NaN through
  // 1.5 * 2^23 rounds the sum to an integer n; 126 on top makes its low bits the exponent of
  // 2^(n - 1), which is finite for n = 128, and 0 for n = -126.
  float shifted = fma(c, 1.44269504f, 12583038.f);
  float n = shifted - 12583038.f;
  float r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, c));
  float p = polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                       1.6666665459e-1f, 5.0000001201e-1f);
  p = fma(p, r * r, r) + 1.f;
  return p * bit_cast<float>(bit_cast<uint32_t>(shifted) << 23) * 2.f;
}
TRIAX_HD double exp(double x) { return __builtin_exp(x); }

TRIAX_HD float tanh(float x) {
  float a = __builtin_fabsf(x), z = x * x;
  float p = polynomial(z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                       1.33314422036e-1f, -3.33332819422e-1f);
  float small = fma(p * z, x, x);
  float large = __builtin_copysignf(1.f - 2.f / (exp(2.f * a) + 1.f), x);
  return select(a < 0.625f, small, large);
}
TRIAX_HD double tanh(double x) { return __builtin_tanh(x); }

/// Returns erf(x), absolute error below 3e-7 (Cephes below 1, Abramowitz and Stegun 7.1.26 above).
TRIAX_HD float erf(float x) {
  float a = __builtin_fabsf(x), z = x * x;
  float p = polynomial(z, 7.853861353153693e-5f, -8.010193625184903e-4f, 5.188327685732524e-3f,
                       -2.685381193529856e-2f, 1.128358514861418e-1f, -3.761262582423300e-1f,
                       1.128379165726710f);
  float t = 1.f / fma(0.3275911f, a, 1.f);
  float q = polynomial(t, 1.061405429f, -1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f);
  float large = __builtin_copysignf(1.f - q * t * exp(-z), x);
  return select(a < 1.f, p * x, large);
}
TRIAX_HD double erf(double x) { return __builtin_erf(x); }

/// Returns ln x within 2 ulp (Cephes); subnormal x included, NaN below zero.
TRIAX_HD float log(float x) {
  bool small = x < 0x1p-126f;
  uint32_t u = bit_cast<uint32_t>(small ? x * 0x1p23f : x) - 0x3f3504f3u;  // sqrt(1/2)
  float e = float(int32_t(u) >> 23) - (small ? 23.f : 0.f);
  float f = bit_cast<float>((u & 0x7fffffu) + 0x3f3504f3u) - 1.f, z = f * f;
  float p = polynomial(f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f,
                       1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f,
                       3.3333331174e-1f);
  float y = fma(e, -2.12194440e-4f, p * z * f);
  y = fma(e, 0.693359375f, f + fma(-0.5f, z, y));
  y = select(x < __builtin_inff(), y, x);  // infinity and NaN stay
  y = select(x == 0.f, -__builtin_inff(), y);
  return select(x < 0.f, __builtin_nanf(""), y);
}
TRIAX_HD double log(double x) { return __builtin_log(x); }
TRIAX_HD float sqrt(float x) { return __builtin_sqrtf(x); }
TRIAX_HD double sqrt(double x) { return __builtin_sqrt(x); }
template <class T> TRIAX_HD T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }

}  // namespace fn

}  // namespace triax
