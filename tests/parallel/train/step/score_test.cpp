// Scores of held-out samples.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/parallel/train/model/task.h"

namespace triax::parallel::score_test {

using namespace test;

TEST(Scores, TopKCountsTargetsAmongTheLargest) {
  Tensor logits = from_host(std::vector<float>{1, 3, 2, 0, 5, 5, 5, 1, 0, 0, 0, 9}, {3, 4}, cpu);
  Tensor target = from_host(std::vector<int32_t>{2, 1, -1}, {3}, cpu);
  EXPECT_EQ(top_k(1)(logits, target), 0);  // of equal ones the first counts
  EXPECT_EQ(top_k(2)(logits, target), 2);
  EXPECT_EQ(top_k(4)(logits, target), 2);  // a blank never
  Tensor broken = from_host(std::vector<float>{NAN, NAN, NAN, 0, 5, NAN, 5, 1}, {2, 4}, cpu);
  Tensor either = from_host(std::vector<int64_t>{2, 0}, {2}, cpu);
  EXPECT_EQ(top_k(4)(broken, either), 1) << "no class of NaN is right";
  EXPECT_EQ(top_k(1)(broken, either), 0) << "and it may be the largest";
  expect_error([] { top_k(0); }, {"top_k: k 0"});
  expect_error([&] { top_k(1)(logits, target.narrow(0, 0, 2)); },
               {"top_k: predictions [3, 4] of targets [2]"});
}

// Of 50 samples in batches of 8 or 16, with blanks behind the last.
TEST(Scores, ScoresOfHeldOutSamplesAreThoseOfOneRank) {
  auto scores = [](const MeshShape& mesh) {
    Task task = task_of();
    task.scores = {{"top1", top_k(1)}, {"top4", top_k(4)}};
    TemporaryDirectory directory;
    auto o = tiny_options(mesh);
    o.out = directory / "run";
    std::map<std::string, double> found;
    train(task, o, [&](Trainer& t) {
      t.on({.validation = [&](Trainer& own, double) { found = own.scores(); }});
    });
    EXPECT_TRUE(says(read_bytes(directory / "run/metrics.jsonl"),
                     fmt::format("\"val_top1\":{},\"val_top4\":1}}", found["top1"])));
    return found;
  };
  auto one = scores({});
  EXPECT_EQ(one.at("top4"), 1);
  EXPECT_GT(one.at("top1"), 0);
  EXPECT_LT(one.at("top1"), 1);
  for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}})
    EXPECT_EQ(scores(mesh), one) << mesh.dp << mesh.pp << mesh.tp;
  Task task = task_of();
  task.scores = {{"rows", [](const Tensor& p, const Tensor&) { return double(p.size(0)); }}};
  expect_error([&] { train(task, tiny_options()); },
               {"blanks (index -1) of the held-out samples has rows 8; expected 0"}, Exit::config);
  task.scores = {{"loss", top_k(1)}};
  EXPECT_TRUE(refused(outcome(task, tiny_options()), "task: score `loss`", "not loss"));
}

/// A head that has no answer without targets.
struct OnlyLoss : ClassHead {
  using ClassHead::ClassHead;
  Tensor operator()(const Tensor& x, const nn::Batch& b) const {
    check(b.target.defined(), "no targets");
    return ClassHead::operator()(x, b);
  }
};
struct OnlyLossNet : nn::Sequence {
  explicit OnlyLossNet(const TensorParallel& tp) { add<OnlyLoss>("head", 4, 16, tp); }
};

TEST(Scores, PredictionsAreAskedForScoresAlone) {
  Task task = task_of<OnlyLossNet>();
  train(task, tiny_options());
  task.scores = {{"top1", top_k(1)}};
  expect_error([&] { train(task, tiny_options()); },
               {"scores of predictions, for which the model is given batches without target"},
               Exit::internal);
}

}  // namespace triax::parallel::score_test
