// Sums in fp16 that are made in fp32.
#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "tests/support/tensors.h"

namespace triax {
namespace {

using test::expect_near;
using test::test_device;

// What a leaf sees of rows is summed in its gradient's fp32: the sum may be too large for fp16.
TEST(HalfSums, GradientsOfStretchedLeavesAreSummedInFp32) {
  constexpr int64_t rows = 12;
  Tensor x = full({rows, 2}, 1, f16, test_device()), mask = full({1}, 1, u8, test_device());
  auto check = [&](const std::function<Tensor(const Tensor&)>& fn, double slope) {
    Tensor leaf = full({2}, 1, f16, test_device());
    require_grad(leaf);
    backward(fn(leaf), full(x.shape(), 8192, f16, test_device()));
    expect_near(grad(leaf), std::vector<double>(2, slope * 8192 * rows), 0);
  };
  check([&](const Tensor& b) { return x + b; }, 1);
  check([&](const Tensor& b) { return b + x; }, 1);
  check([&](const Tensor& b) { return x - b; }, -1);
  check([&](const Tensor& b) { return b - x; }, 1);
  check([&](const Tensor& b) { return x * b; }, 1);
  check([&](const Tensor& b) { return b * x; }, 1);
  check([&](const Tensor& b) { return x / b; }, -1);
  check([&](const Tensor& b) { return b / x; }, 1);
  check([&](const Tensor& b) { return expand(b, x.shape()); }, 1);
  check([&](const Tensor& b) { return where(mask, b, x); }, 1);
}

}  // namespace
}  // namespace triax
