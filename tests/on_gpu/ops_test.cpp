// Every member of Backend, on the device under test against the CPU, in every float dtype.
#include "tests/on_gpu/on.h"
#include "triax/core/functors/unary.h"

namespace triax::test {
namespace {

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto cases : {movement_cases, elementwise_cases, row_cases, token_cases, convolution_cases})
    for (Case& c : cases()) all.push_back(std::move(c));
  return all;
}

class OnGpu : public testing::TestWithParam<std::tuple<Case, DType>> {};

std::string name_of_case(const testing::TestParamInfo<std::tuple<Case, DType>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + name(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Op, OnGpu,
                         testing::Combine(testing::ValuesIn(all_cases()),
                                          testing::Values(f32, f64, f16, bf16)),
                         name_of_case);

TEST_P(OnGpu, DoesWhatTheCpuDoes) {
  const auto& [op, dtype] = GetParam();
  On there(test_device(), dtype), again(test_device(), dtype), here(cpu, dtype);
  for (On* on : {&there, &again, &here}) op.run(*on);
  Tensors got = there.finish(), repeated = again.finish(), expected = here.finish();
  ASSERT_EQ(got.size(), expected.size());
  ASSERT_FALSE(got.empty());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "output " << i << ", " << str(got[i].shape()));
    expect_near(got[i], doubles(expected[i]), op.within * allowed(got[i].dtype(), dtype));
    bool repeats = op.bits == Bits::repeat || !on_real_gpu();
    EXPECT_TRUE(!repeats || same_bits(got[i].to(cpu), repeated[i].to(cpu))) << "two runs differ";
  }
}

// Memory that a GPU reads and writes without the host's help, as offloading and metrics use it.
TEST(OnGpuHostMemory, IsReadAndWrittenInOrder) {
  Backend& gpu = backend(test_device());
  auto on_host = [&](int64_t n) {
    auto bytes = std::make_shared<Storage>(size_t(n) * 4, cpu, gpu.host_allocator());
    return Tensor(bytes, f32, {n}, {1});
  };
  for (int64_t n : {1, 33, 1 << 20}) {
    Tensor from = on_host(n), to = on_host(n), x = empty({n}, f32, test_device());
    for (int round = 0; round < 3; ++round) {
      fill_(from, round);
      gpu.transfer(from, x);
      gpu.unary(unary_id<functors::Neg>(), x, x);
      gpu.transfer(x, to);
      if (auto mark = gpu.mark()) {
        mark->wait();
        EXPECT_TRUE(mark->reached());
      }
      expect_near(to, std::vector<double>(size_t(n), -round), 0);
    }
  }
}

}  // namespace
}  // namespace triax::test
