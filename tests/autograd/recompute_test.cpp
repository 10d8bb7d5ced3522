// Recomputation: the same bits as without, inputs that are kept packed, and tensors whose bytes go
// and are made again. Graph shapes with it are in engine_test.cpp. correctness 39, 41.
#include <functional>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/gelu.h"
#include "triax/autograd/ops.h"

namespace triax {
namespace {

using namespace test;

class Recomputed : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(autograd::live_nodes(), 0); }
};

struct Gradients {
  Tensor y, dx, dw;
};

using Part = std::function<Tensor(const Tensor& x, const Tensor& w)>;

Tensor residual(const Tensor& x, const Tensor& w) { return x + gelu(linear(gelu(x), w)); }

/// Of sum(part(h, w)) where h is x, or computed from it.
Gradients gradients(const Part& part, DType dtype, bool leaf) {
  Tensor x = filled({6, 8}, 1, dtype), w = filled({8, 8}, 2, dtype);
  require_grad(x);
  require_grad(w);
  Tensor h = leaf ? x : gelu(x), y = part(h, w);
  backward(sum(y * filled({6, 8}, 3, dtype)));
  return {y.detach(), grad(x), grad(w)};
}

void expect_equal(const Gradients& a, const Gradients& b, const char* what) {
  expect_bitwise(a.y, b.y, what);
  expect_bitwise(a.dx, b.dx, what);
  expect_bitwise(a.dw, b.dw, what);
}

// A leaf collects its gradient in the accumulator's dtype, an intermediate in its own: the second
// run has to do as the first would have.
TEST_F(Recomputed, GivesTheSameBits) {
  Part again = [](auto& h, auto& w) {
    return recompute([w](const Tensor& t) { return residual(t, w); }, h);
  };
  for (DType dtype : {f32, bf16, f16})
    for (bool leaf : {true, false})
      expect_equal(gradients(residual, dtype, leaf), gradients(again, dtype, leaf), name(dtype));
}

TEST_F(Recomputed, KeepsItsInputPacked) {
  int packed = 0, unpacked = 0;
  Packing halves{.pack =
                     [&](const Tensor& x) {
                       ++packed;
                       EXPECT_FALSE(requires_grad(x));
                       return clone(x.view({2, x.numel() / 2}));
                     },
                 .unpack =
                     [&](const Tensor& p, const Shape& shape) {
                       ++unpacked;
                       return p.view(shape);
                     }};
  Part again = [&](auto& h, auto& w) {
    return recompute([w](const Tensor& t) { return residual(t, w); }, h, halves);
  };
  for (bool leaf : {true, false})
    expect_equal(gradients(residual, f32, leaf), gradients(again, f32, leaf), "packed");
  EXPECT_EQ(packed, 2);
  EXPECT_EQ(unpacked, 2);
  NoGrad guard;
  again(filled({6, 8}, 1), filled({8, 8}, 2));
  EXPECT_EQ(packed, 2) << "nothing is kept";
}

/// x + gelu(x w^T) w^T without keeping what GELU returns.
Tensor remaking(const Tensor& x, const Tensor& w) {
  Tensor h = linear(x, w), g = gelu(h), y = linear(g, w);
  return x + remake(y, g, [kept = h.detach()] { return gelu(kept); });
}

TEST_F(Recomputed, RemakesWhatWasDropped) {
  Part plain = [](auto& x, auto& w) { return x + linear(gelu(linear(x, w)), w); };
  for (DType dtype : {f32, bf16, f16})
    for (bool leaf : {true, false})
      expect_equal(gradients(plain, dtype, leaf), gradients(remaking, dtype, leaf), name(dtype));
}

// What a product in front of GELU reads is dropped, and GELU's slope is still the next product's;
// or what GELU itself reads.
TEST_F(Recomputed, RemakesInFrontOfGelu) {
  Part plain = [](auto& x, auto& w) { return linear(linear_gelu(x + x, w, {}), w); };
  Part product = [](auto& x, auto& w) {
    Tensor all = x + x;
    Tensor y = remake(linear_gelu(all, w, {}), all, [kept = x.detach()] { return kept + kept; });
    EXPECT_TRUE(!requires_grad(y) || autograd::gelu_input(y).defined());
    EXPECT_EQ(all.storage()->present(), !requires_grad(y));
    return linear(y, w);
  };
  Part apart = [](auto& x, auto& w) {  // behind a view no product knows of GELU
    return linear(view(gelu(linear(x + x, w)), {6, 8}), w);
  };
  Part input = [](auto& x, auto& w) {
    Tensor h = linear(x + x, w);
    return linear(remake(gelu(h), h, [=] { return linear((x + x).detach(), w.detach()); }), w);
  };
  for (DType dtype : {f32, bf16, f16})
    for (bool leaf : {true, false}) {
      expect_equal(gradients(plain, dtype, leaf), gradients(product, dtype, leaf), name(dtype));
      expect_equal(gradients(apart, dtype, leaf), gradients(input, dtype, leaf), name(dtype));
    }
}

TEST_F(Recomputed, RemadeBytesAreGoneBetweenForwardAndBackward) {
  auto live = [] { return memory::counter()->live(); };
  Tensor x = filled({64, 32}, 1, f32), w = filled({32, 32}, 2, f32);
  require_grad(x);
  require_grad(w);
  int64_t before = live();
  Tensor y = remaking(x, w);
  EXPECT_EQ(live() - before, 2 * 64 * 32 * 4) << "h and y; x is there already";
  autograd::Later later;
  backward(y, filled({64, 32}, 3, f32), &later);
  later.run();
  EXPECT_EQ(live() - before, (2 * 64 * 32 + 32 * 32) * 4) << "y and the two gradients";
  Tensor inside;
  {
    NoGrad guard;
    before = live();
    Tensor h = linear(x, w), g = gelu(h), z = remake(linear(g, w), g, [] { return Tensor(); });
    EXPECT_TRUE(g.storage()->present()) << "nothing is recorded, so nothing is dropped";
  }
}

TEST_F(Recomputed, MisuseIsNamed) {
  Tensor x = filled({4, 4}, 1), w = filled({4, 4}, 2);
  require_grad(w);
  Tensor g = gelu(linear(x, w)), y = linear(g, w);
  expect_error([&] { remake(y, g.detach().narrow(0, 0, 2), [] { return Tensor(); }); },
               {"remake", "[2, 4]", "expected all"});
  Tensor z = remake(y, g, [] { return filled({2, 4}, 1); });
  expect_error([&] { g.data(); }, {"used while released"});
  expect_error([&] { backward(sum(z)); }, {"64 bytes", "128 bytes"});
}

TEST_F(Recomputed, AStubHasHistoryAndNoValues) {
  Tensor x = filled({4, 4}, 1);
  require_grad(x);
  int64_t before = memory::counter()->live();
  Tensor y = x + x, stub = without_values(y);
  y = {};
  EXPECT_EQ(memory::counter()->live(), before);
  expect_error([&] { stub.data(); }, {"used while released"});
  backward(stub, full({4, 4}, 3, f64, test_device()));
  expect_near(grad(x), std::vector<double>(16, 6.0), 0);
}

}  // namespace
}  // namespace triax
