#include "tests/core/kernels.h"

namespace triax::test {
namespace {

class RotaryKernel : public Kernels {};
INSTANTIATE_TEST_SUITE_P(Cpu, RotaryKernel, every_level_and_dtype(), name_of);

/// Angle of pair i at position p.
double angle(int64_t p, int64_t i) { return 0.3 * double(p) + 0.7 * double(p * i); }

Tensor angles(int64_t positions, int64_t width) {
  std::vector<float> v;
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < width; ++i)
      v.push_back(float(i < width / 2 ? std::cos(angle(p, i)) : std::sin(angle(p, i - width / 2))));
  return from_host(v, {positions, width}, cpu);
}

// x is a narrow view of a projection, as queries and keys are.
TEST_P(RotaryKernel, TurnsPairsByTheAngleOfTheirPosition) {
  const int64_t tokens = 10, groups = 3, heads = 2, time = 5;
  for (int64_t width : {2, 6, 64})
    for (auto pairs : {Rotary::Pairs::halves, Rotary::Pairs::neighbours}) {
      Tensor all = randn({tokens, groups, heads + 2, width}, dtype, 1);
      Tensor x = all.narrow(2, 1, heads), y = empty(x.shape(), dtype, cpu), back = empty_like(y);
      Rotary r{x, angles(7, width), time, pairs};
      b.rotary(r, y);
      std::vector<double> in = doubles(x), expected(in.size());
      for (size_t at = 0; at < in.size(); at += size_t(width)) {
        int64_t p = int64_t(at) / (groups * heads * width) % time, half = width / 2;
        for (int64_t i = 0; i < half; ++i) {
          bool halves = pairs == Rotary::Pairs::halves;
          size_t one = at + size_t(halves ? i : 2 * i), two = one + size_t(halves ? half : 1);
          double c = std::cos(angle(p, i)), s = std::sin(angle(p, i));
          expected[one] = in[one] * c - in[two] * s;
          expected[two] = in[one] * s + in[two] * c;
        }
      }
      expect_near(y, expected, std::max(within, 1e-6));
      r.x = y;
      r.turn = Rotary::Turn::back;
      b.rotary(r, back);
      expect_near(back, in, std::max(2 * within, 1e-6));
    }
}

}  // namespace
}  // namespace triax::test
