#include "nn/samples.h"

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"

namespace triax::nn {
namespace {

using namespace test;
using Values = std::vector<double>;

TensorSamples samples(const std::vector<uint8_t>& input, const std::vector<int64_t>& target) {
  return {from_host(input, {2, 3}, cpu).transpose(0, 1), from_host(target, {3, 2}, cpu)};
}

TEST(TensorSamplesTest, RowsBlanksAndWeights) {
  TensorSamples all = samples({1, 2, 3, 4, 5, 6}, {7, 8, 9, -1, -1, -1});
  EXPECT_EQ(all.count(), 3);
  Batch b = all.batch(std::vector<int64_t>{1, -1, 0});
  EXPECT_EQ(b.input.dtype(), u8);
  EXPECT_EQ(values(b.input), (Values{2, 5, 0, 0, 1, 4}));
  EXPECT_EQ(values(b.target), (Values{9, -1, -1, -1, 7, 8}));
  EXPECT_EQ((Values{all.weight(0), all.weight(1), all.weight(2)}), (Values{2, 1, 0}));
}

TEST(TensorSamplesTest, OtherBytesAreAnotherDataSet) {
  std::string one = samples({1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0, 1}).identity();
  EXPECT_EQ(samples({1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0, 1}).identity(), one);
  EXPECT_NE(samples({1, 2, 3, 4, 5, 7}, {0, 0, 0, 0, 0, 1}).identity(), one);
  EXPECT_NE(samples({1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0, 2}).identity(), one);
}

TEST(TensorSamplesTest, RefusesOtherTensorsAndIndices) {
  Tensor two = zeros({2, 3}, f32, cpu), none = zeros({}, i32, cpu);
  for (const Tensors& bad : {Tensors{two, zeros({3}, i32, cpu)},
                             {two, two},
                             {two, none},
                             {none, zeros({1}, i32, cpu)},
                             {zeros({0}, f32, cpu), zeros({0}, i32, cpu)}})
    expect_data_error([&] { TensorSamples(bad[0], bad[1]); },
                      {"samples: input " + str(bad[0]) + ", target " + str(bad[1]),
                       "expected dim 0 of each to count samples"});
  TensorSamples all(two, zeros({2}, i32, cpu));
  for (int64_t i : {-2, 2})
    expect_error([&] { all.batch({&i, 1}); }, {fmt::format("index {}; expected 0 to 1", i)});
}

}  // namespace
}  // namespace triax::nn
