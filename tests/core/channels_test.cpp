// Kernels over channels, and averages, on every instruction level against naive loops.
#include "tests/core/kernels.h"
#include "triax/core/numbers/update.h"

namespace triax::test {
namespace {

class Channels : public Kernels {};
INSTANTIATE_TEST_SUITE_P(Cpu, Channels, every_level_and_dtype(), name_of);

const std::vector<Shape> shapes = {{1, 1}, {5, 31}, {4, 33}, {1000, 70}, {0, 8}, {7, 0}, {3, 16}};

TEST_P(Channels, Sums) {
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(str(shape));
    Tensor x = randn(shape, dtype, 1), z = randn(shape, dtype, 2);
    size_t c = size_t(shape[1]);
    Tensors got = on_any_threads([&] {
      Tensor both = full({2, shape[1]}, 7, f64, cpu);
      b.channel_sums(x, z, both);
      return Tensors{both};
    });
    auto p = doubles(x), q = doubles(z);
    std::vector<double> expected(2 * c);
    for (size_t i = 0; i < p.size(); ++i) {
      expected[i % c] += p[i];
      expected[c + i % c] += p[i] * q[i];
    }
    expect_near(got[0], expected, 1e-12);
  }
}

TEST_P(Channels, Affine) {
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(str(shape));
    Tensor x = randn(shape, dtype, 1), z = randn(shape, dtype, 2);
    Tensor k = randn({4, shape[1]}, sums, 3);
    size_t c = size_t(shape[1]);
    Tensors got = on_any_threads([&] {
      Tensor both = full(shape, 7, dtype, cpu), one = clone(both);
      b.channel_affine(x, z, k, both);
      b.channel_affine({}, z, k, one);
      return Tensors{both, one};
    });
    auto p = doubles(x), q = doubles(z), f = doubles(k);
    std::vector<double> both(p.size()), one(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      one[i] = f[c + i % c] * (q[i] - f[2 * c + i % c]) + f[3 * c + i % c];
      both[i] = f[i % c] * p[i] + one[i];
    }
    expect_near(got[0], both, within);
    expect_near(got[1], one, within);
  }
}

TEST_P(Channels, AverageFollowsUnlessTheStepDoesNotHappen) {
  for (int64_t n : {0, 1, 33, 20000}) {
    Tensor x = randn({n}, dtype, 1), before = randn({n}, sums, 2);
    auto decision = [](double happens) {
      StepDecision d{.happens = happens};
      return from_host(values_of(d), {StepDecision::size}, cpu);
    };
    Tensors got = on_any_threads([&] {
      Tensor now = clone(before), later = clone(before), never = clone(before);
      b.average(now, x, {.rate = 0.25, .scale = 2});
      b.average(later, x, {.rate = 0.25, .scale = 2, .decision = decision(1)});
      b.average(never, x, {.rate = 0.25, .scale = NAN, .decision = decision(0)});
      return Tensors{now, later, never};
    });
    auto from = doubles(x), expected = doubles(before);
    for (size_t i = 0; i < from.size(); ++i) expected[i] += 0.25 * (2 * from[i] - expected[i]);
    expect_near(got[0], expected, 1e-6);
    EXPECT_TRUE(same_bits(got[0], got[1]));
    EXPECT_TRUE(same_bits(got[2], before));
  }
}

}  // namespace
}  // namespace triax::test
