// On which mesh a run goes on with fewer ranks, or more.
#include "triax/parallel/train/step/elastic.h"

#include <gtest/gtest.h>

#include "tests/support/conv_net.h"
#include "tests/support/expect_error.h"

namespace triax::parallel::elastic_test {

using namespace test;

TrainOptions planned(const MeshShape& mesh, int64_t global_batch = 12) {
  TrainOptions o;
  o.step.mesh = mesh;
  o.step.micro_batch = 1;
  o.step.global_batch = global_batch;
  return o;
}

/// `DPxPPxTP` of the mesh on so many ranks.
std::string on(const TrainOptions& o, int64_t ranks) {
  MeshShape s = elastic_options(task_of(), o, ranks).step.mesh;
  return fmt::format("{}x{}x{}", s.dp, s.pp, s.tp);
}

TEST(Elastic, TheModelStaysSplitAndReplicasGo) {
  auto o = planned({.dp = 0, .pp = 2, .tp = 2}, 24);
  EXPECT_EQ(on(o, 16), "4x2x2");
  EXPECT_EQ(on(o, 15), "3x2x2");
  EXPECT_EQ(on(o, 8), "2x2x2");
  EXPECT_EQ(on(o, 7), "1x2x2");
  EXPECT_EQ(on(o, 4), "1x2x2");
}

TEST(Elastic, WithFewerRanksThanPartsTensorParallelRanksStay) {
  auto o = planned({.dp = 2, .pp = 2, .tp = 2});
  EXPECT_EQ(on(o, 3), "1x1x2");
  EXPECT_EQ(on(o, 1), "1x1x1");
  o = planned({.dp = 1, .pp = 4, .tp = 1});
  EXPECT_EQ(on(o, 3), "1x3x1");  // of 4 layers
  o = planned({.dp = 1, .pp = 1, .tp = 4});
  EXPECT_EQ(on(o, 3), "1x1x2");  // a divisor
  o = planned({.dp = 1, .pp = 3, .tp = 2});
  EXPECT_EQ(on(o, 5), "1x2x2");  // four parts, of either shape
  EXPECT_EQ(on(o, 3), "1x3x1");  // three parts are more than two
}

// Statistics of 8 samples are those of two micro-batches of 4, so of an even number of replicas.
TEST(Elastic, TriesFewerReplicasWhereTheModelNeedsThat) {
  auto o = planned({.dp = 0}, 48);
  o.step.micro_batch = 4;
  EXPECT_EQ(elastic_options(conv_task(8), o, 4).step.mesh.dp, 4);
  EXPECT_EQ(elastic_options(conv_task(8), o, 3).step.mesh.dp, 2);
}

TEST(Elastic, ReplicasShareTheGlobalBatch) {
  auto o = planned({.dp = 0});
  EXPECT_EQ(on(o, 12), "12x1x1");
  EXPECT_EQ(on(o, 11), "6x1x1");
  EXPECT_EQ(on(o, 5), "4x1x1");
  o.step.micro_batch = 4;
  EXPECT_EQ(on(o, 12), "3x1x1");
  EXPECT_EQ(on(o, 2), "1x1x1");
}

TEST(Elastic, ADpThatWasGivenIsTheMost) {
  auto o = planned({.dp = 3, .pp = 2});
  EXPECT_EQ(on(o, 24), "3x2x1");
  EXPECT_EQ(on(o, 5), "2x2x1");
}

TEST(Elastic, TheGlobalBatchIsThatOfThePlan) {
  auto o = planned({.dp = 0, .pp = 2}, 0);
  o.step.micro_batch = 3;
  EXPECT_EQ(elastic_options(task_of(), o, 8).step.global_batch, 12);
  o.step.mesh.dp = 2;
  EXPECT_EQ(elastic_options(task_of(), o, 8).step.global_batch, 6);
}

// What a real start would refuse is not chosen.
TEST(Elastic, OtherOptionsStillHold) {
  auto o = planned({.dp = 1, .pp = 3, .tp = 2}, 12);
  o.step.bitwise = true;
  o.step.tp_slices = 1;  // no tp
  EXPECT_EQ(on(o, 6), "1x3x1");
  o = planned({.dp = 1, .pp = 2});
  o.step.chunks = 2;
  o.step.schedule = "interleaved";
  EXPECT_EQ(on(o, 2), "1x2x1");
  o.step.chunks = 4;  // of 4 layers
  EXPECT_EQ(on(o, 2), "1x1x1");
}

TEST(Elastic, RefusesAsTheFirstChoiceIsRefused) {
  auto o = planned({.dp = 0, .pp = 2}, 12);
  o.step.micro_batch = 5;
  expect_config_error([&] { on(o, 4); }, {"global-batch=12 is not a multiple of micro-batch 5"});
  expect_config_error([&] { on(planned({}), 0); }, {"elastic: 0 ranks"});
}

}  // namespace triax::parallel::elastic_test
