// One process with several devices trains as with one.
#include "tests/parallel/scatter_gather_cases.h"
#include "tests/support/expect_error.h"

namespace triax::parallel::scatter_gather_test {

using namespace cases;

TEST(ScatterGather, IsTheModelOnOneDevice) {
  for (size_t devices : {1, 3, 5, 7}) {  // 7: two of them have nothing to do
    SCOPED_TRACE(devices);
    expect_like_one_device(std::vector<Device>(devices, cpu));
  }
}

TEST(ScatterGather, GathersOneElementOfEachPart) {
  SplitModel model;
  model.materialize(cpu, f32, 1);
  nn::Batch batch{test::filled({5, 3}, 5, f32), {}, nn::evaluation};
  Tensor sums = scatter_gather(model, {cpu, cpu}, batch,
                               [&](const nn::Batch& part) { return sum(model(part)); });
  ASSERT_EQ(sums.shape(), (Shape{2}));
  EXPECT_NEAR(sum(sums).item(), sum(model(batch)).item(), 1e-5);
}

TEST(ScatterGather, TheModelIsBackAfterAnError) {
  SplitModel model;
  model.materialize(cpu, f32, 1);
  Tensor weight = model.parameters()[0]->value, sum = model.buffers()[0]->sum;
  bool replaced = false;  // on one device copies of weights are the weights, those of buffers not
  nn::Batch batch{test::filled({4, 3}, 5, f32), {}, 0};
  auto fails = [&](const nn::Batch&) -> Tensor {
    replaced = !model.buffers()[0]->sum.is(sum);
    throw Error(Exit::data, "no");
  };
  test::expect_data_error([&] { (void)scatter_gather(model, {cpu, cpu}, batch, fails); }, {"no"});
  EXPECT_TRUE(replaced);
  EXPECT_TRUE(model.parameters()[0]->value.is(weight));
  EXPECT_TRUE(model.buffers()[0]->sum.is(sum));
}

TEST(ScatterGather, RefusesWhatItCannotSplit) {
  SplitModel model;
  auto run = [&](const std::vector<Device>& devices, const Tensor& input) {
    (void)scatter_gather(model, devices, {input, {}, 0},
                         [&](const nn::Batch& part) { return model(part); });
  };
  Tensor input = test::filled({4, 3}, 5, f32);
  test::expect_error([&] { run({cpu}, input); }, {"weight is an undefined", "expected it on cpu"});
  model.materialize(cpu, f32, 1);
  test::expect_error([&] { run({}, input); }, {"no devices"});
  test::expect_error([&] { run({cpu}, zeros({0, 3}, f32, cpu)); }, {"at least one sample"});
  test::expect_error([&] { run({meta_device}, input); }, {"up.weight", "the first device"});
}

}  // namespace triax::parallel::scatter_gather_test
