// Ops of mixtures of experts: values by hand, gradients against central differences.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"

namespace triax {
namespace {

using namespace test;

std::vector<int32_t> ints(const Tensor& x) { return x.to(cpu).to_host<int32_t>(); }

TEST(ExpertOps, TopKTakesTheFirstOfEqualOnesAndNanLast) {
  for (DType dtype : {f32, f64, bf16, f16}) {
    Tensor x = from_host(std::vector<double>{1, 3, 3, NAN, 2, 0, 0, 0, -0., 0}, {2, 5}, cpu)
                   .to(dtype)
                   .to(test_device());
    EXPECT_EQ(ints(top_k(x, 5)), (std::vector<int32_t>{1, 2, 4, 0, 3, 0, 1, 2, 3, 4}))
        << name(dtype);
    EXPECT_EQ(ints(top_k(x, 1)), (std::vector<int32_t>{1, 0}));
  }
  EXPECT_EQ(top_k(zeros({0, 4}, f32, test_device()), 2).shape(), (Shape{0, 2}));
  EXPECT_EQ(top_k(zeros({7, 4}, f32, meta_device), 3).shape(), (Shape{7, 3}));
  expect_error(
      [] {
        top_k(zeros({2, 3}, f32, test_device()), 4);
      },
      {"top_k: 4 of [2, 3] f32 on ", "; expected 1 to n of [rows, n]"}, Exit::internal);
}

TEST(ExpertOps, GroupingKeepsTheOrderWithinAGroup) {
  Tensor index = from_host(std::vector<int32_t>{2, 0, 2, 1, 0, 2}, {3, 2}, test_device());
  Grouping g = grouped(index, 4);
  EXPECT_EQ(g.counts, (std::vector<int64_t>{2, 1, 3, 0}));
  EXPECT_EQ(ints(g.order), (std::vector<int32_t>{1, 4, 3, 0, 2, 5}));
  EXPECT_EQ(ints(g.place), (std::vector<int32_t>{3, 0, 4, 2, 1, 5}));
  EXPECT_EQ(grouped(zeros({5, 2}, i32, meta_device), 4).counts, (std::vector<int64_t>{3, 3, 2, 2}));
  expect_error([&] { grouped(index, 2); }, {"2"}, Exit::data);
}

// Weight 0 has two stretches, weight 2 an empty one, weight 4 none.
TEST(ExpertOps, GroupedLinearIsAProductForEachStretch) {
  std::vector<Stretch> stretches{{0, 3}, {2, 0}, {1, 2}, {0, 1}, {3, 4}};
  gradcheck([&](const Tensors& in) { return grouped_linear(in[0], in[1], stretches); },
            {filled({10, 5}, 1), filled({5, 3, 5}, 2)});
  Tensor x = filled({10, 5}, 1), w = filled({5, 3, 5}, 2), y = grouped_linear(x, w, stretches);
  int64_t at = 0;
  for (auto& s : stretches) {
    Tensor one = linear(x.narrow(0, at, s.rows), w.narrow(0, s.weight, 1).view({3, 5}));
    expect_near(y.narrow(0, at, s.rows), values(one), 1e-14);
    at += s.rows;
  }
  require_grad(w);
  Tensor left = full(w.shape(), 7, f64, test_device());  // by the step before
  collect_in(w, std::make_shared<autograd::GradientView>(left));
  backward(sum(grouped_linear(x, w, stretches)));
  for (int64_t unused : {2, 4})
    expect_near(left.narrow(0, unused, 1), std::vector<double>(15, 0), 0);
}

TEST(ExpertOps, GroupedLinearRefusesOtherShapes) {
  Tensor x = filled({4, 5}, 1), w = filled({2, 3, 5}, 2);
  expect_error(
      [&] {
        grouped_linear(x, w, {{0, 3}});
      },
      {"grouped_linear: x [4, 5], weights [2, 3, 5], stretches of 3 rows; expected [rows, "
       "in], [weights, out, in] and all rows"},
      Exit::internal);
  expect_error(
      [&] {
        grouped_linear(x, w, {{2, 4}});
      },
      {"grouped_linear: 4 rows of weight 2 of"}, Exit::internal);
}

TEST(ExpertOps, AttachedLossesStartFromTheirSeed) {
  Tensor x = filled({3, 2}, 1), z = filled({3, 2}, 2);
  require_grad(x), require_grad(z);
  Tensor y = attach_loss(x * 1., sum(z * z), 0.25);
  expect_bitwise(y, x);
  backward(sum(y));
  expect_near(grad(x), std::vector<double>(6, 1), 0);
  expect_near(grad(z), values(z.detach() * 0.5), 1e-15);
  EXPECT_TRUE(attach_loss(x, sum(z), 0).is(x));
  expect_error([&] { attach_loss(x, z, 1); },
               {"attach_loss: loss [3, 2] f64 on ", "; expected one"}, Exit::internal);
}

}  // namespace
}  // namespace triax
