// Values that an op has kept and somebody writes to before backward: an error, never a wrong
// gradient. What no op has kept may be written to.
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"

namespace triax {
namespace {

using namespace test;

constexpr const char* message = "has kept values that were overwritten since";

Tensor leaf(const Shape& shape, int seed) {
  Tensor x = filled(shape, seed);
  require_grad(x);
  return x;
}

TEST(Written, WhatAnOpHasKeptOfItsInputsIsNotOverwritten) {
  Tensor w = leaf({2, 3}, 1), state = filled({2, 3}, 2);
  Tensor y = sum(w * state);
  fill_(state, 7);
  expect_error([&] { backward(y); }, {"mul has kept"});
}

TEST(Written, AlsoThroughAViewOrAnotherHandle) {
  Tensor w = leaf({3, 4}, 1), x = filled({2, 4}, 2);
  Tensor y = sum(linear(x, w));
  copy_(x.detach().narrow(0, 1, 1), zeros({1, 4}, x.dtype(), test_device()));
  expect_error([&] { backward(y); }, {message});
}

TEST(Written, NorIsTheOutputThatItHasKept) {
  Tensor w = leaf({4}, 1);
  Tensor e = exp(w), y = sum(e);
  fill_(e.detach(), 0);
  expect_error([&] { backward(y); }, {"exp has kept"});
}

TEST(Written, NorTheInputOfWhatIsRecomputed) {
  Tensor w = leaf({4}, 1), x = filled({4}, 2);
  Tensor y = recompute([&](const Tensor& t) { return sum(t * w); }, x);
  fill_(x, 0);
  expect_error([&] { backward(y); }, {message});
}

TEST(Written, NorWhatWeightGradientsThatArePutOffWaitFor) {
  Tensor w = leaf({3, 4}, 1), h = leaf({2, 4}, 2), x = filled({2, 4}, 3);
  Tensor y = sum(linear(x, w)) + sum(h);
  autograd::Later later;
  backward(y, {}, &later);
  fill_(x, 0);
  expect_error([&] { later.run(); }, {message});
}

// What an op has kept besides its inputs.
TEST(Written, NorMasksIndicesAndTargets) {
  auto refused = [](const char* op, const Tensor& kept, const Tensor& y) {
    fill_(kept, 0);
    expect_error([&] { backward(sum(y)); }, {std::string(op) + " has kept"});
  };
  auto ids = [] { return from_host(std::vector<int32_t>{2, 1}, {2}, test_device()); };
  Tensor w = leaf({3, 3}, 1), i = ids(),
         mask = from_host(std::vector<uint8_t>(9, 1), {3, 3}, test_device());
  refused("where", mask, where(mask, w, 2 * w));
  refused("index_select", i, index_select(w, 0, i));
  i = ids();
  refused("embedding", i, embedding(i, w));
  i = ids();
  refused("cross_entropy", i, cross_entropy(w.detach().narrow(0, 0, 2) * sum(w), i));
  i = from_host(std::vector<int32_t>{2, 1, 0}, {3, 1}, test_device());
  refused("gather", i, gather(w, i));
  Tensor x = leaf({4, 3}, 2), y = gelu(x);
  refused("gelu", x.detach(), y);
  Tensor mean = full({3}, 0, f64, test_device()), one = full({3}, 1, f64, test_device());
  refused("batch_norm_with", mean, batch_norm_with(x, one, mean, {mean, one}));
  Tensor turned = leaf({2, 4}, 3), angles = full({2, 4}, 0.5, f32, test_device());
  refused("rotary", angles, rotary(turned, angles, {.time = 2}));
  Tensor h = gelu(2 * x), z = linear(h, w);
  refused("gelu_linear", h.detach(), z);
}

TEST(Written, WhatNoOpHasKeptMayBe) {
  Tensor w = leaf({2, 3}, 1), state = filled({2, 3}, 2);
  Tensor y = w;
  for (int step = 0; step < 3; ++step) {
    y = y + state;
    fill_(state, step);
  }
  backward(sum(2 * y));
  expect_near(grad(w), std::vector<double>(6, 2), 1e-12);
}

TEST(Written, CopyAndFillRefuseTensorsWithAHistory) {
  Tensor w = leaf({4}, 1), out = zeros({4}, w.dtype(), test_device());
  Tensor y = 2 * w;
  expect_error([&] { copy_(out, y); }, {"copy_: [4] f64 on"});
  expect_error([&] { copy_(y, out); }, {"copy_: [4] f64 on"});
  expect_error([&] { fill_(y, 0); }, {"fill_: [4] f64 on"});
  copy_(out, w);  // a leaf may be copied, and updated by hand when its graph is gone
  copy_(w, w.detach() * 2.);
  Tensor z = sum(w * w);
  fill_(w, 0);
  expect_error([&] { backward(z); }, {"mul has kept"});
}

}  // namespace
}  // namespace triax
