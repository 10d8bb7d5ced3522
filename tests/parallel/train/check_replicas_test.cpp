// One flipped bit in what one replica holds is found, and no other run is refused.
#include <gtest/gtest.h>

#include "core/files.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

using test::task_of;
using test::tiny_options;

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

void train(const TrainOptions& o, const Flip& flip = {}) {
  run_worlds(o.step.mesh.size(), [&](World& world) {
    Trainer trainer(task_of(), o, world);
    auto step = [&](Trainer& t, const StepRecord& r) {
      if (world.rank() == flip.rank && r.result.step == flip.step) flip_bit(t, flip.name);
    };
    trainer.on({.step = step}, On::all);
    trainer.run();
  });
}

TrainOptions options(const MeshShape& mesh) {
  auto o = tiny_options(mesh);
  o.steps = 8, o.check_replicas = 2;
  o.step.micro_batch = 4, o.step.global_batch = 4 * mesh.dp;
  return o;
}

TEST(CheckReplicas, NamesTheRankAndTheTensor) {
  for (const char* name : {"block0.up.weight", "block0.up.weight/m"}) {
    SCOPED_TRACE(name);
    test::expect_error(
        [&] {
          train(options({.dp = 4}), {2, name});
        },
        {"replicas: after step 4 ", "rank 2 differs from ranks 0, 1, 3 in "}, Exit::mismatch);
    test::expect_error(
        [&] {
          train(options({.dp = 2}), {1, name});
        },
        {"rank 1 differs from rank 0 in "}, Exit::mismatch);
  }
}

TEST(CheckReplicas, NothingIsSavedOfReplicasThatDiffer) {
  test::TemporaryDirectory directory;
  auto o = options({.dp = 3});
  o.check_replicas = 1000, o.save_every = 2, o.out = directory / "run";
  test::expect_error(
      [&] {
        train(o, {1, "block0.up.weight"});
      },
      {"after step 4", "rank 1 differs"}, Exit::mismatch);
  EXPECT_TRUE(disk().is_directory(o.out + "/step-2"));
  EXPECT_FALSE(disk().is_directory(o.out + "/step-4"));
}

TEST(CheckReplicas, EqualReplicasTrainOn) {
  for (MeshShape mesh : {MeshShape{.dp = 2, .pp = 2, .tp = 2}, {.dp = 3}, {.dp = 2, .tp = 2}})
    for (DType dtype : {f32, bf16, f16}) {
      auto o = options(mesh);
      o.check_replicas = 1, o.step.dtype = dtype;
      o.step.sequence_parallel = mesh.tp > 1;
      EXPECT_NO_THROW(train(o)) << fmt::format("{}x{}x{} {}", mesh.dp, mesh.pp, mesh.tp, dtype);
    }
}

TEST(CheckReplicas, RefusesWhatHasNoReplicas) {
  test::expect_error([&] { train(options({})); }, {"check-replicas=2 with dp=1"}, Exit::config);
  auto o = options({.dp = 2});
  o.step.zero = Zero::optimizer;
  test::expect_error([&] { train(o); }, {"check-replicas=2 with dp=2 and zero=1"}, Exit::config);
}

}  // namespace
}  // namespace triax::parallel
