// Between GPUs, where there are two.
#include "core/cuda/devices.h"
#include "tests/core/kernels.h"
#include "tests/support/device.h"

namespace triax::test {
namespace {

class Peers : public testing::Test {
 protected:
  static constexpr Device one{Device::Kind::cuda, 0}, other{Device::Kind::cuda, 1};
  void SetUp() override {
    if (!on_gpu() || cuda::device_count() < 2) GTEST_SKIP() << "two GPUs are needed";
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

}  // namespace
}  // namespace triax::test
