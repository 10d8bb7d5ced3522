// Attention: gradients against central differences in f64, views, and errors with their messages.
// Values against a naive loop stand in tests/core.
#include "tests/support/expect_error.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"

namespace triax {
namespace {

using namespace test;

class AttentionOp : public ::testing::Test {
 protected:
  // No graph outlives its test.
  void TearDown() override { EXPECT_EQ(autograd::live_nodes(), 0); }
};

TEST_F(AttentionOp, Gradients) {
  for (random::Mask mask : {random::Mask{}, random::Mask{.p = 0.3f, .key = 4, .row = 20}}) {
    auto packed = [&](const Tensors& t) { return attention(t[0], {.time = 5}, mask); };
    gradcheck(packed, {filled({10, 2, 3, 3}, 1)});
    gradcheck(packed, {filled({5, 1, 4, 2}, 1)});  // two heads read one key
    auto apart = [&](AttentionShape shape) {
      return [=](const Tensors& t) { return attention(t[0], t[1], t[2], shape, mask); };
    };
    Tensors grouped{filled({10, 4, 3}, 1), filled({10, 2, 3}, 2), filled({10, 2, 3}, 3)};
    gradcheck(apart({.time = 5}), grouped);
    gradcheck(apart({.time = 5, .causal = false}), grouped);
    gradcheck(apart({.time = 10, .window = 3}), grouped);
    gradcheck(apart({.time = 5, .key_time = 2, .causal = false}),
              {grouped[0], filled({4, 1, 3}, 4), filled({4, 1, 3}, 5)});
    gradcheck(apart({.time = 1, .key_time = 4}),
              {filled({2, 2, 3}, 6), filled({8, 1, 3}, 7), filled({8, 1, 3}, 8)});
  }
}

// Heads of one projection, wherever they stand in it, give what their copies give.
TEST_F(AttentionOp, ReadsViewsWhereTheyLie) {
  AttentionShape shape{.time = 7};
  Tensor qkv = filled({14, 2, 5, 4}, 1);  // groups of 3
  auto parts = [](const Tensor& x) {
    return Tensors{narrow(x, 2, 0, 3), narrow(x, 2, 3, 1), narrow(x, 2, 4, 1)};
  };
  auto views = [&](const Tensors& t) {
    Tensors p = parts(t[0]);
    return attention(p[0], p[1], p[2], shape);
  };
  gradcheck(views, {qkv});
  Tensors p = parts(qkv);
  Tensor expected = attention(qkv, shape), turned = clone(p[0].transpose(0, 3)).transpose(0, 3);
  expect_bitwise(views({qkv}), expected);
  expect_bitwise(attention(turned, p[1], p[2], shape), expected, "last stride not 1");
  Tensor q = clone(p[0]).view({14, 6, 4}), k = clone(p[1]).view({14, 2, 4}),
         v = clone(p[2]).view({14, 2, 4});
  expect_bitwise(attention(q, k, v, shape), expected, "contiguous, rank 3");
  Tensor by_head = clone(q.transpose(0, 1)).transpose(0, 1);  // [heads, tokens, head_dim] in memory
  expect_bitwise(attention(by_head, k, v, shape), expected, "heads first");
}

TEST_F(AttentionOp, RefusesWhatDoesNotFit) {
  auto of = [](Shape q, Shape k, AttentionShape shape, float p = 0) {
    auto make = [](Shape s) { return zeros(s, f32, test_device()); };
    return [=] { attention(make(q), make(k), make(k), shape, {.p = p}); };
  };
  expect_error(of({10, 6, 4}, {10, 4, 4}, {.time = 5}),
               {"attention", "6 query heads", "4 key-value"});
  expect_error(of({10, 0, 4}, {10, 2, 4}, {.time = 5}), {"attention", "0 query heads"});
  expect_error(of({10, 3, 2, 4}, {10, 2, 4}, {.time = 5}), {"6 query heads, [10, 3, 2, 4], for 2"});
  expect_error(of({10, 2, 4}, {10, 2, 3}, {.time = 5}),
               {"[10, 2, 4]", "[10, 2, 3]", "one head_dim"});
  expect_error(of({10, 2, 4}, {10, 2, 2, 4}, {.time = 5}), {"keys [10, 2, 2, 4]", "group of 1"});
  expect_error(of({10, 2, 4}, {10, 2, 4}, {.time = 4}), {"time 4", "whole sequences"});
  expect_error(of({10, 2, 4}, {12, 2, 4}, {.time = 5}), {"10 query tokens", "12 key tokens"});
  expect_error(of({10, 2, 4}, {4, 2, 4}, {.time = 5, .key_time = 2}),
               {"causal with time 5 and key_time 2", "at least as many keys"});
  expect_error(of({10, 2, 4}, {10, 2, 4}, {.time = 5, .causal = false, .window = 3}),
               {"window 3, not causal", "0 unless causal"});
  expect_error(of({10, 2, 4}, {10, 2, 4}, {.time = 5, .window = -1}), {"window -1", "at least 0"});
  expect_error(of({10, 2, 4}, {10, 2, 4}, {.time = 5}, 1), {"p 1", "0 <= p < 1"});
  expect_error(
      [] {
        attention(zeros({10, 18}, f32, test_device()), {.time = 5});
      },
      {"packed projection [10, 18]", "group + 2"});
}

}  // namespace
}  // namespace triax
