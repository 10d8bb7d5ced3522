#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "triax/core/backend.h"
#include "triax/core/cpu/levels.h"
#include "triax/core/random.h"
#include "triax/core/shared/team.h"

namespace triax {
inline void PrintTo(DType t, std::ostream* out) { *out << name(t); }
}  // namespace triax

namespace triax::test {

/// What a rounded result may differ by, relative to 1 + |expected|.
inline double tolerance(DType t) {
  constexpr double of[] = {3e-6, 1e-12, 2e-3, 1.2e-2};
  return of[int(t)];
}

/// Numbers around 0 of the given spread, rounded to `dtype`.
inline Tensor randn(const Shape& shape, DType dtype, uint64_t seed, double spread = 1) {
  Tensor x = empty(shape, f64, cpu);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<double>()[i] = spread * random::normal(seed, uint64_t(i));
  return x.to(dtype);
}

/// The values in row-major order; any dtype and strides.
inline std::vector<double> doubles(const Tensor& x) {
  return x.to(f64).contiguous().to_host<double>();
}

inline void expect_near(const Tensor& got, const std::vector<double>& expected, double within) {
  std::vector<double> values = doubles(got);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i])) ASSERT_TRUE(std::isnan(values[i])) << "element " << i;
    else if (std::isinf(expected[i])) ASSERT_EQ(values[i], expected[i]) << "element " << i;
    else
      ASSERT_NEAR(values[i], expected[i], within * (1 + std::fabs(expected[i]))) << "element " << i;
  }
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

/// f() makes new tensors and returns one or several in a Tensors; run on 1, 2 and 3 threads the
/// bits must be the same.
template <class F> Tensors on_any_threads(F f) {
  int before = team_threads();
  set_threads(1);
  Tensors first = f();
  for (int threads : {2, 3}) {
    set_threads(threads);
    EXPECT_EQ(threads_here(), threads);
    Tensors again = f();
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(same_bits(first[i], again[i])) << threads << " threads, output " << i;
  }
  set_threads(before);
  return first;
}

/// Every kernel test runs at every instruction level of this machine, in every float dtype.
class Kernels : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  Backend& b = host::backend_of(std::get<0>(GetParam()));
  DType dtype = std::get<1>(GetParam());
  DType sums = accumulator(dtype);
  double within = tolerance(dtype);
};

inline std::string name_of(const testing::TestParamInfo<std::tuple<std::string, DType>>& info) {
  return std::get<0>(info.param) + "_" + name(std::get<1>(info.param));
}

inline auto every_level_and_dtype() {
  return testing::Combine(testing::ValuesIn(host::levels()), testing::Values(f32, f64, f16, bf16));
}

}  // namespace triax::test
