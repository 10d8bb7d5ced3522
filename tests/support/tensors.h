#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/device.h"
#include "triax/core/random.h"
#include "triax/core/tensor.h"

namespace triax::test {

/// Normal values times `scale`, a function of `key` and position, on test_device().
inline Tensor filled(const Shape& shape, uint64_t key, DType dtype = f64, double scale = 0.5) {
  std::vector<double> v(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = scale * random::normal(key, i);
  return from_host(v, shape, cpu).to(dtype).to(test_device());
}

/// All elements as doubles, row-major.
inline std::vector<double> values(const Tensor& x) {
  return x.detach().contiguous().to(f64).to_host<double>();
}

inline void expect_near(const Tensor& got, const std::vector<double>& expected, double tolerance,
                        const std::string& what = "") {
  auto v = values(got);
  ASSERT_EQ(v.size(), expected.size()) << what;
  for (size_t i = 0; i < v.size(); ++i)
    ASSERT_NEAR(v[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << " at " << i;
}

inline void expect_bitwise(const Tensor& a, const Tensor& b, const std::string& what = "") {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  ASSERT_EQ(values(a), values(b)) << what;
}

}  // namespace triax::test
