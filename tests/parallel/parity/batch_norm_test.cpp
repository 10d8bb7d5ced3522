// A convolutional net with batch norm on meshes: statistics of fewer samples than a micro-batch
// has, of as many, and of more (SyncBN), with every ZeRO stage, schedule, precision and
// recomputation; running statistics in checkpoints, and after a skipped step.
#include <gtest/gtest.h>

#include "tests/support/conv_net.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::batch_norm_test {

using namespace test;

TEST(BatchNormParity, MeshesAndGroups) {
  int number = 0;
  for (MeshShape mesh : {MeshShape{1, 1, 1},
                         {2, 1, 1},
                         {4, 1, 1},
                         {1, 2, 1},
                         {1, 4, 1},
                         {1, 1, 2},
                         {2, 2, 1},
                         {2, 2, 2}})
    for (int64_t micro_batch : {2, 4})
      for (int64_t samples : {1, 2, 4, 8, 16}) {
        if (samples > micro_batch * mesh.dp) continue;
        auto o = conv_options(mesh, micro_batch);
        const char* schedules[] = {"1f1b", "gpipe", "zb-h1"};
        o.step.zero = Zero(++number % 4), o.step.schedule = schedules[number % 3];
        o.step.recompute = number % 5 == 0 ? Recompute::block : Recompute::off;
        EXPECT_EQ(difference(conv_task(samples), o), "")
            << mesh.dp << mesh.pp << mesh.tp << " micro-batch " << micro_batch << ", statistics of "
            << samples << ", ZeRO " << int(o.step.zero) << ", " << o.step.schedule;
      }
}

TEST(BatchNormParity, FeaturesThatMeet) {
  for (DType dtype : {f32, bf16, f16})
    for (const char* schedule : {"interleaved", "zb-interleaved"}) {
      auto o = conv_options({.dp = 2, .pp = 2}, 4);
      o.step.dtype = dtype, o.step.schedule = schedule, o.step.chunks = 2;
      o.step.zero = Zero::parameters, o.step.recompute = Recompute::block;
      EXPECT_EQ(difference(conv_task(8), o), "") << name(dtype) << " " << schedule;
    }
  auto split = conv_options({.dp = 2, .tp = 2}, 4);
  split.step.recompute = Recompute::block_split, split.step.zero = Zero::gradients;
  EXPECT_EQ(difference(conv_task(8), split), "") << "block-split";
  auto four = conv_options({.dp = 4}, 2);
  four.step.zero = Zero::parameters, four.step.recompute = Recompute::block;
  for (int64_t samples : {4, 8}) EXPECT_EQ(difference(conv_task(samples), four), "") << samples;
}

TEST(BatchNormParity, ParametersAndBuffersThatNoLayerUsesAreRefused) {
  struct Lonely : ConvNet {
    explicit Lonely(const TensorParallel& tp) : ConvNet(4, tp) {
      auto& norm = child<nn::BatchNorm>("lonely", 6, 4, nn::BatchNormOptions{.shard = tp.whole()});
      (void)norm;
    }
  };
  Task task = conv_task(4);
  task.build = [](auto& tp) { return std::make_unique<Lonely>(tp); };
  EXPECT_TRUE(refused(outcome(task, conv_options({}, 4)), "buffer lonely.mean: no layer",
                      "expected its module in an add()"));
}

TEST(BatchNormParity, GroupsThatTheMeshCannotMakeAreRefusedBeforeTheFirstStep) {
  EXPECT_TRUE(refused(outcome(conv_task(8), conv_options({.dp = 1}, 4)), "layer first",
                      "statistics of 8 samples, with micro-batches of 4 on 1 replica"));
  EXPECT_TRUE(refused(outcome(conv_task(3), conv_options({.dp = 2}, 4)), "layer first",
                      "statistics of 3 samples"));
}

/// Loss of every step and of the validation at the end, trained in one go or with a stop on another
/// mesh in between.
std::vector<double> losses(const std::vector<std::pair<MeshShape, int64_t>>& legs) {
  TemporaryDirectory directory;
  std::vector<double> all;
  for (auto& [mesh, steps] : legs) {
    auto o = conv_options(mesh, 4);
    o.out = directory / "run", o.resume = "auto", o.steps = steps, o.step.zero = Zero::optimizer;
    o.lr = {.peak = 1e-2, .low = 1e-2, .warmup = 0};
    train(conv_task(4), o, [&](Trainer& t) {
      t.on({.step = [&](auto&, const StepRecord& r) { all.push_back(r.result.loss); },
            .validation = [&](auto&, double loss) { all.push_back(loss); }});
    });
  }
  return all;
}

// The validation reads the running statistics, which three of the six steps have made.
TEST(BatchNormParity, RunningStatisticsGoThroughCheckpointsToAnotherMesh) {
  auto straight = losses({{{}, 6}});
  auto stopped = losses({{{.dp = 2}, 3}, {{.dp = 1, .pp = 2}, 6}});
  ASSERT_EQ(straight.size(), 7u);
  ASSERT_EQ(stopped.size(), 8u);  // one validation more
  EXPECT_NEAR(stopped.back(), straight.back(), 1e-5);
  EXPECT_NEAR(stopped[6], straight[5], 1e-5);
}

TEST(BatchNormParity, ASkippedStepIsForgotten) {
  auto o = conv_options({.dp = 2}, 4);
  o.step.dtype = f16, o.step.loss_scale = 1e14;
  run_worlds(2, [&](World& world) {
    Trainer trainer(conv_task(8), o, world);
    auto before = statistics(trainer);
    EXPECT_TRUE(trainer.step().skipped);
    EXPECT_EQ(statistics(trainer), before);
  });
  // What a step notes is its own: with no learning the second step moves as far as the first.
  o.step.dtype = f32, o.step.loss_scale = 0;
  o.lr = {.peak = 0, .low = 0, .warmup = 0};
  o.step.global_batch = 64;
  run_worlds(2, [&](World& world) {
    Trainer trainer(conv_task(8), o, world);
    trainer.step();
    auto first = statistics(trainer).at("first.norm.mean");
    trainer.step();
    auto second = statistics(trainer).at("first.norm.mean");
    for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(second[i], 1.9 * first[i], 1e-5);
  });
}

TEST(BatchNormParity, OneModuleWithBuffersInTwoLayersIsRefused) {
  struct Shared : ConvNet {
    explicit Shared(const TensorParallel& tp) : ConvNet(4, tp) {
      auto& norm = child<nn::BatchNorm>("shared", 2, 4, nn::BatchNormOptions{.shard = tp.whole()});
      for (const char* name : {"a", "b"})
        add(name, {&norm}, [&norm](const Tensor& x, const nn::Batch& b) { return norm(x, b); });
    }
  };
  Task task = conv_task(4);
  task.build = [](auto& tp) { return std::make_unique<Shared>(tp); };
  EXPECT_TRUE(refused(outcome(task, conv_options({}, 4)),
                      "layer b: it uses shared.mean, as layer a does",
                      "expected one layer for a module with buffers"));
}

}  // namespace triax::parallel::batch_norm_test
