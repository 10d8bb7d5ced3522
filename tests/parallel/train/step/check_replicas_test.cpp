// One flipped bit in what one replica holds is found, and no other run is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/train/step/digests.h"

namespace triax::parallel::check_replicas_test {

using namespace test;

/// After step `step`, in element 1 of the tensor called `name`, of what `rank` holds.
struct Flip {
  int rank = -1;
  std::string name = {};
  int64_t step = 3;
};

void flip_bit(const Trainer& trainer, const std::string& name) {
  for (const Piece& piece : trainer.update().pieces(Holder::any))
    if (name_of(piece) == name) {
      static_cast<uint8_t*>(piece.value.data())[size_of(piece.value.dtype())] ^= 1;
      return;
    }
  fail(Exit::internal, "no tensor {}", name);
}

TrainOptions options(const MeshShape& mesh) {
  auto o = tiny_options(mesh);
  o.steps = 8, o.check_replicas = 2;
  o.step.micro_batch = 4, o.step.global_batch = 4 * mesh.dp;
  return o;
}

void expect_difference(const TrainOptions& o, const Flip& flip,
                       const std::vector<std::string>& parts) {
  auto broken = [&](World& world) {
    Trainer trainer(task_of(), o, world);
    auto step = [&](Trainer& t, const StepRecord& r) {
      if (world.rank() == flip.rank && r.result.step == flip.step) flip_bit(t, flip.name);
    };
    trainer.on({.step = step}, On::all);
    trainer.run();
  };
  expect_error([&] { run_worlds(o.step.mesh.size(), broken); }, parts, Exit::mismatch);
}

TEST(CheckReplicas, NamesTheRankAndTheTensor) {
  TemporaryDirectory directory;
  for (std::string name : {"block0.up.weight", "block0.up.weight/m"}) {
    SCOPED_TRACE(name);
    // One step later the optimizer has spread it to the tensor's other state.
    expect_difference(
        options({.dp = 4}), {2, name},
        {"replicas: after step 4 ", "rank 2 differs from ranks 0, 1, 3 in block0.up"});
    auto at_once = options({.dp = 2});
    at_once.save_every = 3, at_once.out = directory / unique_suffix();
    expect_difference(at_once, {1, name},
                      {"after step 3 ", "rank 1 differs from rank 0 in " + name + " (1 of "});
  }
}

TEST(CheckReplicas, NothingIsSavedOfReplicasThatDiffer) {
  TemporaryDirectory directory;
  auto o = options({.dp = 3});
  o.check_replicas = 1000, o.save_every = 2, o.out = directory / "run";
  expect_difference(o, {1, "block0.up.weight"}, {"after step 4", "rank 1 differs"});
  EXPECT_TRUE(disk().is_directory(o.out + "/step-2"));
  EXPECT_FALSE(disk().is_directory(o.out + "/step-4"));
}

TEST(CheckReplicas, ASaveThatIsUnderWayIsFinished) {
  TemporaryDirectory directory;
  auto o = options({.dp = 2});
  o.check_replicas = 1, o.save_every = 3, o.save_async = true, o.out = directory / "run";
  expect_difference(o, {1, "block0.up.weight", 4}, {"after step 4", "rank 1"});
  EXPECT_TRUE(disk().is_directory(o.out + "/step-3"));
}

TEST(CheckReplicas, ReadsWhatLiesInFiles) {
  TemporaryDirectory directory;
  auto o = options({.dp = 2});
  o.step.offload = Offloaded::optimizer, o.step.offload_dir = directory.path();
  EXPECT_NO_THROW(train(o));
  expect_difference(o, {1, "block0.up.weight"}, {"rank 1 differs from rank 0"});
}

TEST(CheckReplicas, EqualReplicasTrainOn) {
  for (MeshShape mesh : {MeshShape{.dp = 2, .pp = 2, .tp = 2},
                         {.dp = 3},
                         {.dp = 2, .tp = 2},
                         {.dp = 1, .pp = 2, .tp = 2},
                         {.dp = 1}})
    for (DType dtype : {f32, bf16, f16}) {
      auto o = options(mesh);
      o.check_replicas = 1, o.step.dtype = dtype;
      o.step.sequence_parallel = mesh.tp > 1;
      EXPECT_NO_THROW(train(o)) << name_of_run(o);
    }
}

TEST(CheckReplicas, RefusesWhatDoesNotHoldTheSame) {
  auto o = options({.dp = 2});
  o.step.zero = Zero::optimizer;
  expect_config_error([&] { train(o); }, {"check-replicas=2 with zero=1"});
  o = options({.dp = 2, .tp = 2});
  o.launch.nondeterministic = true;
  expect_config_error([&] { train(o); }, {"with tp=2 and nondeterministic"});
}

// Bits of named tensors: what differs is named, and only what to_lines wrote is read.

Tensor numbers(std::vector<float> values) {
  auto size = std::ssize(values);
  return from_host(std::move(values), {size}, cpu);
}

TEST(Digests, NameTheFirstThatDiffersInBits) {
  Digests before{digest_of("a", numbers({1, 2})), digest_of("b", numbers({3, 0}))};
  EXPECT_EQ(compare(before, before).count, 0u);
  Digests now{before[0], digest_of("b", numbers({3, -0.f}))};
  EXPECT_EQ(compare(before, now).count, 1u);
  EXPECT_EQ(compare(before, now).first,
            "b: f32 [2], norm 3, crc32c 378bb8b7; there f32 [2], norm 3, crc32c b57d83cf");
  now[1] = digest_of("b", numbers({3, 0}).view({2, 1}));
  EXPECT_EQ(compare(before, now).count, 1u) << "same bytes, another shape";
  now[1] = digest_of("c", numbers({3, 0}));
  EXPECT_EQ(compare(before, now).count, 2u) << "one is new, one is gone";
  now.pop_back();
  EXPECT_EQ(compare(before, now).first.substr(0, 10), "b: nothing");
}

TEST(Digests, AreReadAsTheyWereWritten) {
  Digests rows{digest_of("a", numbers({1, INFINITY})), bits_of("b", empty({0}, bf16, cpu))};
  Digests again = from_lines(to_lines(rows), "here");
  EXPECT_EQ(compare(rows, again).count, 0u);
  EXPECT_EQ(again[0].norm, INFINITY);
  std::string line = "a\tf32 [2]\t1\t00000000";
  for (std::string text :
       std::vector<std::string>{line, "\n", line + "\n" + line + "\n", line + "\t\n", line + "g\n"})
    test::expect_data_error([&] { from_lines(text, "here"); }, {"here:", "expected a table"});
}

}  // namespace triax::parallel::check_replicas_test
