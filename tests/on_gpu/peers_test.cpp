// Between GPUs, where there are two.
#include "tests/core/kernels.h"
#include "tests/support/device.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/core/gpus.h"

namespace triax::test {
namespace {

class Peers : public testing::Test {
 protected:
  static constexpr Device one{Device::Kind::cuda, 0}, other{Device::Kind::cuda, 1};
  void SetUp() override {
    if (!on_gpu() || gpu_count() < 2) GTEST_SKIP() << "two GPUs are needed";
  }
};

TEST_F(Peers, TensorsGoFromGpuToGpu) {
  for (DType t : {f32, f64, f16, bf16})
    for (int64_t n : {1, 33, 1 << 15}) {
      Tensor x = randn({n, 3}, t, 1, 2);
      EXPECT_TRUE(same_bits(x, x.to(one).to(other).to(cpu)));
      Tensor turned = x.to(other).transpose(0, 1).to(one), narrow = zeros({n, 5}, t, one);
      EXPECT_TRUE(same_bits(x.transpose(0, 1).contiguous(), turned.to(cpu)));
      copy_(narrow.narrow(1, 1, 3), x.to(other));
      EXPECT_TRUE(same_bits(x, narrow.narrow(1, 1, 3).contiguous().to(cpu)));
    }
}

TEST_F(Peers, TheSourceIsReadBeforeItChanges) {
  for (int round = 0; round < 10; ++round) {
    Tensor x = full({1 << 20}, round, f32, one), y = x.to(other);
    fill_(x, -1);
    x = {};
    Tensor z = full({1 << 20}, -2, f32, one);  // the block that x had
    EXPECT_EQ(y.narrow(0, y.numel() - 1, 1).item(), round);
  }
}

/// Two layers and a loss; the second layer is on `second`. Returns {loss, gradients}.
Tensors two_layers(Device first, Device second) {
  Tensor x = randn({33, 8}, f32, 1, 2), targets = full({33}, 3, i32, cpu).to(second);
  Tensor w1 = randn({16, 8}, f32, 3, 4).to(first), w2 = randn({5, 16}, f32, 5, 6).to(second);
  Tensor input = x.to(first);
  for (Tensor* leaf : {&input, &w1, &w2}) require_grad(*leaf);
  Tensor h = gelu(linear(input, w1, {}));
  Tensor loss = cross_entropy(linear(move_to(h, second), w2, {}), targets);
  backward(loss);
  return {loss.detach().to(cpu), grad(input).to(cpu), grad(w1).to(cpu), grad(w2).to(cpu)};
}

TEST_F(Peers, LayersOnTwoGpusAreOneModel) {
  Tensors expected = two_layers(cpu, cpu);
  for (auto [first, second] : {std::pair(one, one), std::pair(one, other), std::pair(cpu, other)}) {
    SCOPED_TRACE(str(first) + " " + str(second));
    Tensors got = two_layers(first, second);
    for (size_t i = 0; i < got.size(); ++i) expect_near(got[i], doubles(expected[i]), 1e-5);
  }
}

}  // namespace
}  // namespace triax::test
