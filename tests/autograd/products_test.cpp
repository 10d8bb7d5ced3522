// Products: gradients against central differences in f64, and their errors.
#include "tests/support/expect_error.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"
#include "triax/autograd/ops.h"
#include "triax/autograd/record.h"

namespace triax {
namespace {

using namespace test;

class ProductsTest : public ::testing::Test {
 protected:
  // No graph outlives its test.
  void TearDown() override { EXPECT_EQ(autograd::live_nodes(), 0); }
};

TEST_F(ProductsTest, HaveTheirGradients) {
  auto product = [](const Tensors& t) { return matmul(t[0], t[1]); };
  gradcheck(product, {filled({3, 4}, 1), filled({4, 2}, 2)});
  gradcheck(product, {filled({2, 3, 4}, 1), filled({2, 4, 2}, 2)});
  gradcheck(product, {filled({2, 3, 4}, 1), filled({4, 2}, 2)});  // batch stretches
  gradcheck(product, {filled({3, 4}, 1), filled({2, 1, 4, 2}, 2)});
  gradcheck([](const Tensors& t) { return matmul(transpose(t[0], 0, 1), transpose(t[1], 0, 1)); },
            {filled({4, 3}, 1), filled({2, 4}, 2)});
  Tensors xwb{filled({5, 3}, 1), filled({4, 3}, 2), filled({4}, 3)};
  gradcheck([](const Tensors& t) { return linear(t[0], t[1], t[2]); }, xwb);
  gradcheck([](const Tensors& t) { return linear(t[0], t[1]); }, {xwb[0], xwb[1]});
  gradcheck([](const Tensors& t) { return linear_gelu(t[0], t[1], t[2]); }, xwb);
  expect_near(linear_gelu(xwb[0], xwb[1], xwb[2]), values(gelu(linear(xwb[0], xwb[1], xwb[2]))),
              1e-12);
  // A product behind gelu takes the slope into its own rule: alone, beside others that use gelu's
  // output or what it was made of, behind a leaf, and behind another such product.
  Tensors two{filled({5, 3}, 1), filled({4, 3}, 2), filled({4}, 3), filled({2, 4}, 4),
              filled({2}, 5)};
  gradcheck([](const Tensors& t) { return linear(linear_gelu(t[0], t[1], t[2]), t[3], t[4]); },
            two);
  gradcheck(
      [](const Tensors& t) {
        Tensor h = linear(t[0], t[1], t[2]), y = gelu(h);
        return sum(linear(y, t[3], t[4])) + sum(y * y) + sum(linear(y, t[1])) + sum(h * h);
      },
      {filled({5, 3}, 1), filled({3, 3}, 2), filled({3}, 3), filled({2, 3}, 4), filled({2}, 5)});
  gradcheck([](const Tensors& t) { return linear(gelu(t[0]), t[1]); }, {xwb[0], xwb[1]});
  gradcheck([](const Tensors& t) { return linear(gelu(transpose(t[0], 0, 1)), t[1]); },
            {filled({3, 5}, 1), xwb[1]});
  gradcheck([](const Tensors& t) { return linear_gelu(linear_gelu(t[0], t[1], t[2]), t[3], t[4]); },
            two);
  expect_error(
      [] {
        matmul(zeros({2, 3}, f32, test_device()), zeros({2, 3}, f32, test_device()));
      },
      {"matmul", "[2, 3] x [2, 3]"});
  expect_error(
      [] {
        linear(zeros({2, 3}, f32, test_device()), zeros({4, 2}, f32, test_device()));
      },
      {"linear", "[2, 3]", "[4, 2]", "[out, in]"});
  expect_error(
      [] {
        linear(zeros({2, 3}, f32, test_device()), zeros({4, 3}, f32, test_device()),
               zeros({3}, f32, test_device()));
      },
      {"bias [3]", "expected [4]"});
}

TEST_F(ProductsTest, AddToAResidual) {
  // Onto a residual, which others use too, is the product itself, and a leaf.
  Tensors onto{filled({5, 3}, 1), filled({5, 3}, 2), filled({5}, 3), filled({5, 5}, 4)};
  gradcheck([](const Tensors& t) { return linear_onto(t[3], t[0], t[1], t[2]); }, onto);
  gradcheck(
      [](const Tensors& t) {
        Tensor h = t[3] * t[3], y = linear_onto(h, t[0], t[1], t[2]);
        return sum(y * h) + sum(linear_onto(y, gelu(y), t[3])) + sum(linear_onto(y, y, t[3]));
      },
      onto);
  expect_near(linear_onto(onto[3], onto[0], onto[1], onto[2]),
              values(onto[3] + linear(onto[0], onto[1], onto[2])), 1e-12);
  Tensor constant = filled({5, 5}, 5).detach();
  gradcheck([&](const Tensors& t) { return linear_onto(constant, t[0], t[1], t[2]); },
            {onto[0], onto[1], onto[2]});
  gradcheck([](const Tensors& t) { return linear_onto(transpose(t[2], 0, 1), t[0], t[1]); },
            {onto[0], onto[1], onto[3]});
  expect_error([&] { linear_onto(onto[0], onto[0], onto[1], onto[2]); },
               {"linear_onto", "[5, 3]", "expected [5, 5]"});
}

}  // namespace
}  // namespace triax
