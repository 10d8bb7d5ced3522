// Losses of logits that are not finite, and of what masks leave.
#include <cmath>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "tests/support/tensors.h"

namespace triax {
namespace {

using namespace test;

constexpr double inf = INFINITY;

TEST(Losses, AClassThatAMaskForbidsCountsNothing) {
  for (DType dtype : {f64, f32, bf16, f16}) {
    Tensor logits = from_host(std::vector<double>{-inf, 2, 3, 4, 1, -inf, 0, -inf}, {2, 4}, cpu)
                        .to(dtype)
                        .to(test_device());
    require_grad(logits);
    Tensor targets = from_host(std::vector<int32_t>{2, 0}, {2}, test_device());
    Tensor loss = cross_entropy(logits, targets);
    double first = std::log(std::exp(-1) + 1 + std::exp(1)), second = std::log(1 + std::exp(-1));
    expect_near(loss, {(first + second) / 2}, 1e-6, name(dtype));
    backward(loss);
    double a = std::exp(-1 - first), b = std::exp(-first), c = std::exp(1 - first);
    double d = std::exp(-second), e = std::exp(-1 - second);
    double tolerance = dtype == f64 || dtype == f32 ? 1e-6 : 4e-3;
    expect_near(grad(logits), {0, a / 2, (b - 1) / 2, c / 2, (d - 1) / 2, 0, e / 2, 0}, tolerance,
                name(dtype));
  }
}

TEST(Losses, OfAForbiddenTargetAreInfinite) {
  Tensor logits = from_host(std::vector<double>{-inf, 2}, {1, 2}, test_device());
  Tensor targets = from_host(std::vector<int32_t>{0}, {1}, test_device());
  EXPECT_EQ(cross_entropy(logits, targets).item(), inf);
  EXPECT_EQ(cross_entropy(logits, targets, {.smoothing = 0.1}).item(), inf);
}

}  // namespace
}  // namespace triax
