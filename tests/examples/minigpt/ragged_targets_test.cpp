// correctness 7: sequences in which different numbers of targets count. Divided by the number that
// counts in all micro-batches of all replicas, loss and gradient are those of one rank.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/examples/minigpt/one_step.h"

namespace triax::minigpt::ragged_targets_test {

constexpr int64_t sequences = 8;

/// The first sequences of `whole`. Of sequence s the first 5 s mod 9 targets count: of the first
/// none, of others all.
std::shared_ptr<nn::Samples> ragged(const nn::Samples& whole) {
  std::vector<int64_t> first(sequences);
  std::iota(first.begin(), first.end(), 0);
  nn::Batch b = whole.batch(first);
  auto targets = b.target.to_host<int32_t>();
  int64_t time = b.target.size(1);
  for (int64_t i = 0; i < std::ssize(targets); ++i)
    if (i % time >= 5 * (i / time) % 9) targets[size_t(i)] = -1;
  return std::make_shared<nn::TensorSamples>(b.input, from_host(targets, b.target.shape(), cpu));
}

struct Cut {
  Layout layout;
  int64_t micro_batch;
};

parallel::StepResult step(const Cut& cut) {
  Job c = small_job(cut.layout, 1);
  c.model.width = 16;
  c.model.dropout = 0.1;
  c.step().micro_batch = cut.micro_batch;
  c.step().global_batch = sequences;
  parallel::Task task = task_of(c);
  task.samples = ragged(*task.samples);
  parallel::StepResult result;
  parallel::run_worlds(c.ranks(), [&](parallel::World& world) {
    auto mine = parallel::Trainer(task, c.train, world).step();
    if (world.rank() == 0) result = mine;
  });
  EXPECT_EQ(result.weight, 0 + 5 + 1 + 6 + 2 + 7 + 3 + 8);
  return result;
}

TEST(RaggedTargets, CountTheSameHoweverTheBatchIsCut) {
  auto one = step({{.dp = 1}, sequences});
  EXPECT_NEAR(one.loss, std::log(64), 0.5);
  EXPECT_GT(one.grad_norm, 0.01);
  for (const Cut& cut : {Cut{{.dp = 1}, 1},
                         {{.dp = 2}, 4},
                         {{.dp = 2}, 1},
                         {{.dp = 4, .zero = 2}, 1},
                         {{.dp = 2, .pp = 2, .schedule = "zb-h1"}, 2},
                         {{.dp = 2, .pp = 2, .tp = 2, .sequence_parallel = true, .zero = 3}, 2}}) {
    auto other = step(cut);
    SCOPED_TRACE(fmt::format("{}, micro-batch {}", describe(cut.layout), cut.micro_batch));
    EXPECT_NEAR(other.loss, one.loss, 1e-6 * one.loss);
    EXPECT_NEAR(other.grad_norm, one.grad_norm, 5e-5 * one.grad_norm);
  }
}

}  // namespace triax::minigpt::ragged_targets_test
