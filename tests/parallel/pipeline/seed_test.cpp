#include <gtest/gtest.h>

#include "autograd/record.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/pipeline/pipeline.h"

namespace triax::parallel {
namespace {

// So that a loss can make its gradient in forward.
TEST(PipelineTest, TheLastLayerIsToldWhatBackwardStartsFrom) {
  run_ranks(1, [&](Communicator& world) {
    Mesh mesh(world, {});
    Tensor w = full({2}, 1, f32, cpu);
    require_grad(w);
    int right = 0;
    auto run = [&](const Tensor&, const nn::Batch& b) {
      return record("last", full({}, 2, f32, cpu), {w},
                    [&right, told = b.loss.seed](const Tensor& dy) {
                      EXPECT_EQ(dy.item(), 0.5);
                      right += told.defined() && told.data() == dy.data();
                      return Tensors{full({2}, 1, f32, cpu)};
                    });
    };
    Pipeline pipeline(mesh, {{{"last", {}, run}}}, {});
    pipeline.train({.micros = 2, .batch = [](int) { return nn::Batch{}; }, .seed = 0.5});
    EXPECT_EQ(right, 2);
  });
}

}  // namespace
}  // namespace triax::parallel
