#pragma once
#include <gtest/gtest.h>

#include <cmath>

#include "triax/core/cpu/levels.h"
#include "triax/core/random.h"

// Operands of matrix products in several layouts, and what they should give.
namespace triax::test::products {

constexpr DType floats[] = {f32, f64, f16, bf16};

inline double epsilon(DType t) {
  return t == f64 ? 0x1p-52 : t == f32 ? 0x1p-23 : t == f16 ? 0x1p-10 : 0x1p-7;
}

inline Tensor values(const Shape& shape, DType dtype, uint64_t key) {
  std::vector<double> v(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = 2.0 * random::uniform(key, i, 0) - 1.0;
  return from_host(v, shape, cpu).to(dtype);
}
inline std::vector<double> doubles(const Tensor& x) { return x.to(f64).to_host<double>(); }

enum Layout { plain, transposed, spaced };
/// A view of `shape` over values laid out in one of three ways.
inline Tensor laid_out(Shape shape, Layout layout, DType dtype, uint64_t key) {
  int r = shape.rank();
  if (layout == plain) return values(shape, dtype, key);
  if (layout == transposed) {
    std::swap(shape[r - 1], shape[r - 2]);
    return values(shape, dtype, key).transpose(r - 1, r - 2);
  }
  int64_t width = shape[r - 1];
  shape[r - 1] += 5;
  return values(shape, dtype, key).narrow(r - 1, 3, width);
}

/// a b in double, from the operands' rounded values: [batches, m, n].
inline std::vector<double> naive(const Tensor& a, const Tensor& b) {
  int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  int64_t batches = 1;
  for (int d = 0; d < a.rank() - 2; ++d) batches *= a.size(d);
  std::vector<double> x = doubles(a), y = doubles(b), c(static_cast<size_t>(batches * m * n));
  for (int64_t s = 0; s < batches; ++s)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < n; ++j)
          c[size_t((s * m + i) * n + j)] +=
              x[size_t((s * m + i) * k + l)] * y[size_t((s * k + l) * n + j)];
  return c;
}

inline void expect_near(const std::vector<double>& expected, const Tensor& actual, int64_t k) {
  std::vector<double> got = doubles(actual);
  ASSERT_EQ(expected.size(), got.size());
  DType t = actual.dtype();
  double sums = epsilon(accumulator(t)) * double(k + 4);
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(expected[i], got[i], sums + epsilon(t) * (1e-3 + std::abs(expected[i])))
        << "element " << i << " of " << str(actual);
}

/// Every level in turn.
class MatmulTest : public testing::TestWithParam<std::string> {
 protected:
  Backend& backend_ = host::backend_of(GetParam());
};

inline auto level_name = [](const auto& level) { return level.param; };

}  // namespace triax::test::products
