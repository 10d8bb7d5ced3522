// Batch norm as a layer: which samples share statistics, and what becomes of the running ones.
#include "triax/nn/batch_norm.h"

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/core/numbers/update.h"

namespace triax::nn {
namespace {

using namespace test;

/// A norm of 3 channels, and batches of images for it.
class BatchNormLayer : public testing::Test {
 protected:
  static std::unique_ptr<BatchNorm> norm(int64_t samples) {
    auto made = std::make_unique<BatchNorm>(3, samples);
    made->materialize(test_device(), f32, 1);
    return made;
  }
  static Batch batch(int64_t samples, uint64_t key, int64_t first = 0) {
    Tensor x = filled({samples, 2, 2, 3}, key, f32);
    return {.input = x, .target = zeros({samples}, i32, test_device()), .first = first};
  }
};

TEST_F(BatchNormLayer, RunningStatisticsAreUpdatedOnceAStepWithTheMeanOfItsMicroBatches) {
  auto n = norm(4);
  Batch a = batch(4, 1), b = batch(4, 2);
  for (auto* buffer : n->buffers()) buffer->reset();
  for (const Batch& m : {a, b}) (*n)(m.input, m);
  expect_near(n->buffers()[0]->value, {0, 0, 0}, 0);
  for (auto* buffer : n->buffers()) buffer->update();
  std::vector<double> mean(3), variance(3);
  for (const Batch& m : {a, b}) {
    auto v = values(m.input);
    for (size_t c = 0; c < 3; ++c) {
      double sum = 0, squares = 0;
      for (size_t i = c; i < v.size(); i += 3) sum += v[i] / 16;
      for (size_t i = c; i < v.size(); i += 3) squares += (v[i] - sum) * (v[i] - sum) / 15;
      mean[c] += 0.1 * sum / 2;
      variance[c] += (0.9 + 0.1 * squares) / 2;
    }
  }
  EXPECT_EQ(n->buffers()[0]->name, "mean");
  expect_near(n->buffers()[0]->value, mean, 1e-6);
  expect_near(n->buffers()[1]->value, variance, 1e-6);

  Batch all = batch(2, 3, evaluation);
  Tensor given =
      batch_norm_with(all.input, full({3}, 1, f32, test_device()), zeros({3}, f32, test_device()),
                      {n->buffers()[0]->value, n->buffers()[1]->value});
  expect_bitwise((*n)(all.input, all).detach(), given);
  all.first = 0, all.target = {};  // asked for a prediction
  expect_bitwise((*n)(all.input, all).detach(), given);
}

TEST_F(BatchNormLayer, AStepThatDoesNotHappenUpdatesNothing) {
  auto n = norm(4);
  Batch b = batch(4, 1);
  fill_(b.input, NAN);
  (*n)(b.input, b);
  StepDecision decision{.happens = 0};
  Tensor plan = from_host(values_of(decision), {StepDecision::size}, cpu).to(test_device());
  for (auto* buffer : n->buffers()) buffer->update(1, plan);
  expect_near(n->buffers()[0]->value, {0, 0, 0}, 0);
  expect_near(n->buffers()[1]->value, {1, 1, 1}, 0);
}

TEST_F(BatchNormLayer, GroupsOfAMicroBatchAreAsMicroBatchesOfOneGroup) {
  auto together = norm(2), apart = norm(2);
  Batch b = batch(4, 1);
  Tensor whole = (*together)(b.input, b).detach();
  for (int64_t g : {0, 1}) {
    Batch part = b;
    part.input = clone(b.input.narrow(0, 2 * g, 2)), part.target = b.target.narrow(0, 0, 2);
    expect_bitwise((*apart)(part.input, part).detach(), whole.narrow(0, 2 * g, 2));
  }
  for (size_t i : {0u, 1u}) {
    together->buffers()[i]->update();
    apart->buffers()[i]->update();
    expect_near(together->buffers()[i]->value, values(apart->buffers()[i]->value), 1e-6);
  }
}

TEST_F(BatchNormLayer, RecomputationAccumulatesNothingTwice) {
  auto plain = norm(4), again = norm(4);
  Batch b = batch(4, 1);
  (*plain)(b.input, b);
  Tensor x = b.input;
  require_grad(x);
  backward(recompute([&](const Tensor& in) { return (*again)(in, b); }, x),
           filled(x.shape(), 5, f32));
  EXPECT_EQ(again->buffers()[0]->count, 1);
  expect_bitwise(again->buffers()[0]->sum, plain->buffers()[0]->sum);
}

/// Three replicas that hold the same.
struct Three : Replicas {
  int64_t count() const override { return 3; }
  void sum(const Tensor& x, int64_t ranks) const override { copy_(x, x * double(ranks)); }
};

TEST_F(BatchNormLayer, StatisticsOfMoreSamplesThanAMicroBatchAreSummedOverReplicas) {
  auto alone = norm(2), shared = norm(6);
  Batch b = batch(2, 1);
  Tensor y = (*alone)(b.input, b).detach();
  Three three;
  b.replicas = &three;
  expect_near((*shared)(b.input, b).detach(), values(y), 1e-6);
  // Of 24 rows in place of 8 the unbiased variance is smaller.
  Tensor ratio = shared->buffers()[1]->sum / alone->buffers()[1]->sum;
  expect_near(ratio, std::vector<double>(3, (24. / 23) / (8. / 7)), 1e-6);
}

TEST_F(BatchNormLayer, MicroBatchesThatMakeNoGroupsAreRefused) {
  Batch b = batch(4, 1);
  for (int64_t samples : {3, 8})
    expect_config_error(
        [&] { (*norm(samples))(b.input, b); },
        {fmt::format("statistics of {} samples, with micro-batches of 4 on 1 replica", samples),
         "Valid: a micro-batch of a multiple of"});
  Three three;
  b.replicas = &three;
  expect_config_error([&] { (*norm(8))(b.input, b); }, {"on 3 replicas"});
  b.input = zeros({0, 2, 2, 3}, f32, test_device()), b.target = zeros({0}, i32, test_device());
  expect_config_error([&] { (*norm(4))(b.input, b); }, {"with micro-batches of 0 on 3 replicas"});
  Batch one{.input = filled({2, 3}, 1, f32), .target = zeros({2}, i32, test_device())};
  expect_config_error([&] { (*norm(1))(one.input, one); },
                      {"x [2, 3] has one value of each channel in a group of 1 samples"});
  expect_config_error(
      [] {
        BatchNorm(3, 2, {.shard = {.along = {{"tp", Along::parts}}}});
      },
      {"batch norm: each tensor-parallel rank", "--sequence-parallel"});
  expect_error([] { BatchNorm(3, 0); }, {"batch norm: statistics of 0 samples"});
  expect_config_error(
      [] {
        struct Twice : Module {
          Twice() { buffer({.name = "b", .shape = {1}}), parameter({.name = "b", .full = {1}}); }
        } twice;
      },
      {"two parameters named 'b'"});
}

}  // namespace
}  // namespace triax::nn
