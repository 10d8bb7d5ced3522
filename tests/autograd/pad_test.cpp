// Values against a naive loop, gradients against central differences, and the errors.
#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"

namespace triax {
namespace {

using namespace test;

TEST(PadOp, SurroundsWithAConstant) {
  constexpr int64_t a = 3, b = 5, before = 2, after = 1, behind = 4;
  for (DType t : {f32, f64, f16, bf16, i32, i64, u8}) {
    std::vector<double> v;
    for (int i = 0; i < a * b; ++i) v.push_back(i + 1);
    Tensor x = from_host(v, {a, b}, cpu).to(t).to(test_device());
    Tensor y =
        pad(x, {{.dim = 0, .before = before, .after = after}, {.dim = -1, .after = behind}}, 7);
    ASSERT_EQ(y.shape(), Shape({before + a + after, b + behind}));
    EXPECT_EQ(y.dtype(), t);
    auto got = y.to(cpu).to(f64).to_host<double>();
    for (int64_t i = 0; i < y.size(0); ++i)
      for (int64_t j = 0; j < y.size(1); ++j) {
        bool inside = i >= before && i < before + a && j < b;
        EXPECT_EQ(got[size_t(i * (b + behind) + j)], inside ? (i - before) * b + j + 1 : 7)
            << name(t) << " at " << i << ", " << j;
      }
  }
}

TEST(PadOp, Gradients) {
  Tensor x = filled({2, 3, 4}, 1);
  gradcheck([](const Tensors& t) { return pad(t[0], {{.dim = 1, .before = 2}}); }, {x});
  gradcheck(
      [](const Tensors& t) {
        return pad(transpose(t[0], 0, 2), {{0, 1, 2}, {2, 0, 3}, {0, 2, 1}}, 0.5) * 2;
      },
      {x});
  EXPECT_EQ(pad(x, {}).shape(), x.shape());
  EXPECT_EQ(pad(zeros({0, 2}, f32, test_device()), {{0, 1, 1}}).shape(), Shape({2, 2}));
}

TEST(PadOp, RefusesWhatItCannotPad) {
  Tensor x = filled({2, 3}, 1);
  expect_error([&] { pad(x, {{.dim = 1, .before = -1}}); },
               {"pad: -1 and 0 elements around dim 1 of [2, 3]", "expected at least 0"});
  expect_error([&] { pad(x, {{.dim = 2}}); }, {"dim 2"});
  expect_error([] { pad(Tensor(), {}); }, {"pad: an undefined tensor"});
}

}  // namespace
}  // namespace triax
