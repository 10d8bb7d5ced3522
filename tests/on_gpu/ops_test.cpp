// Every member of Backend, on the device under test against the CPU, in every float dtype.
#include "tests/on_gpu/on.h"

namespace triax::test {
namespace {

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto cases : {movement_cases, elementwise_cases, row_cases, token_cases})
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
    expect_near(got[i], doubles(expected[i]), op.within * tolerance(got[i].dtype()));
    EXPECT_TRUE(same_bits(got[i].to(cpu), repeated[i].to(cpu))) << "of two runs differ";
  }
}

}  // namespace
}  // namespace triax::test
