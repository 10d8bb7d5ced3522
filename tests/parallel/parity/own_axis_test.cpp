// Axes that a program adds: a model trains as on one rank along them, with every other axis.
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::own_axis_test {

using namespace test;

/// Blocks split over tp and over another axis of features, in turn.
struct TwoWays : nn::Sequence {
  explicit TwoWays(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Block>("block0", tp);
    add<Block>("block1", tp.on("parts"));
    add<Block>("block2", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TrainOptions options(const MeshShape& mesh, AxisKind kind, int ranks) {
  auto o = tiny_options(mesh);
  o.step.micro_batch = 2, o.step.global_batch = 16;
  std::string name = kind.name;
  o.step.add_axis(std::move(kind));
  o.step.mesh.size_of(name) = ranks;
  return o;
}

TEST(OwnAxis, OfFeatures) {
  int number = 0;
  for (MeshShape mesh : {MeshShape{}, {.dp = 2}, {.tp = 2}, {.dp = 2, .pp = 2, .tp = 2}})
    for (int ranks : {2, 4}) {
      auto o = options(mesh, {.name = "parts", .cuts = Cuts::features}, ranks);
      o.step.zero = Zero(++number % 4), o.step.sequence_parallel = mesh.tp > 1 && number % 2;
      EXPECT_EQ(difference(task_of<TwoWays>(), o), "") << str(o.step.mesh) << " " << number;
    }
}

TEST(OwnAxis, OfReplicasThatHoldTheSameSlices) {
  for (MeshShape mesh : {MeshShape{.dp = 2}, {.dp = 2, .pp = 2}, {.dp = 2, .tp = 2}})
    for (Zero zero : {Zero::off, Zero::optimizer, Zero::gradients, Zero::parameters}) {
      AxisKind nodes{.name = "nodes", .cuts = Cuts::samples, .zeros = AxisKind::Zeros::replicate};
      auto o = options(mesh, nodes, 2);
      o.step.zero = zero;
      EXPECT_EQ(difference(task_of<>(), o), "") << str(mesh) << " ZeRO " << int(zero);
      o.step.bitwise = mesh.tp == 1;
      EXPECT_EQ(difference(task_of<>(), o), "") << str(mesh) << " ZeRO " << int(zero) << " bitwise";
    }
}

TEST(OwnAxis, RefusesWhatCouldNotBeTrained) {
  auto said = [](AxisKind kind) {
    return error_of([&] { StepOptions().add_axis(kind); }, Exit::config);
  };
  EXPECT_EQ(said({.name = "tp"}), "axis tp: there is one; expected another name");
  EXPECT_EQ(said({.name = "x", .cuts = Cuts::rows}),
            "axis x: it cuts rows; expected share and rows");
  EXPECT_EQ(said({.name = "x", .cuts = Cuts::samples | Cuts::weights}),
            "axis x: it cuts weights; expected around");
  EXPECT_EQ(said({.name = "x", .cuts = Cuts::features, .zeros = AxisKind::Zeros::replicate}),
            "axis x: it replicates slices; expected samples");
}

}  // namespace triax::parallel::own_axis_test
