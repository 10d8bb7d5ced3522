// Batch norm on GPUs, on any mesh, against one rank on the CPU: activations, loss, gradients, norm,
// weights and running statistics.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/support/conv_net.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel {
namespace {

using namespace test;

TEST(BatchNormOnGpu, IsThatOfOneCpuRank) {
  for (auto [mesh, samples] : {std::pair{MeshShape{}, 2},
                               {MeshShape{.dp = 2}, 4},
                               {MeshShape{.dp = 2}, 8},
                               {MeshShape{.dp = 2, .pp = 2}, 8}})
    for (DType dtype : {f32, bf16, f16}) {
      auto o = conv_options(mesh, 4);
      o.step.dtype = dtype, o.step.zero = mesh.dp > 1 ? Zero::gradients : Zero::off;
      Task task = conv_task(samples);
      Trace reference = trace(task, reference_of(o));
      o.launch.device = "cuda:0";
      auto d = compare_with_reference(task, o, reference);
      EXPECT_FALSE(d) << fmt::format("dp {} pp {} {}: step {}: {} {}: {}", mesh.dp, mesh.pp,
                                     name(dtype), d->step, d->what, d->name, d->how_much);
    }
}

/// Every layer has the rows of the batch, as captured steps ask for.
struct Normed : nn::Sequence {
  explicit Normed(const TensorParallel& tp) {
    add<nn::Linear>("up", 16, 6, nn::LinearOptions{.shard = tp.whole()});
    auto& norm = child<nn::BatchNorm>("norm", 6, 8, nn::BatchNormOptions{.shard = tp.whole()});
    add("norm", {&norm}, [&norm](const Tensor& x, const nn::Batch& b) { return relu(norm(x, b)); });
    add<ClassHead>("head", 4, 6, tp, VocabularyOptions{.std = 0.3});
  }
};

using Statistics = std::map<std::string, std::vector<float>>;

/// The running statistics after each of five steps, and the loss as `loss`.
std::vector<Statistics> train(TrainOptions o) {
  std::vector<Statistics> all;
  o.launch.device = "cuda:0";
  run_worlds(1,
             [&](World& world) {
               Trainer trainer(task_of<Normed>(), o, world);
               for (int i = 0; i < 5; ++i) {
                 auto result = trainer.step();
                 all.push_back(statistics(trainer));
                 all.back()["loss"] = {float(result.loss), float(result.skipped)};
               }
             },
             {.device = device_named(o.launch.device)});
  return all;
}

TEST(BatchNormOnGpu, CapturedStepsHaveTheBitsOfQueuedOnes) {
  for (DType dtype : {f32, f16}) {
    auto o = tiny_options();
    o.steps = 5, o.step.dtype = dtype;
    auto queued = train(o);
    o.step.graph = true;
    EXPECT_EQ(train(o), queued) << name(dtype);
    EXPECT_NE(queued[4].at("norm.mean"), queued[3].at("norm.mean"));
  }
}

}  // namespace
}  // namespace triax::parallel
