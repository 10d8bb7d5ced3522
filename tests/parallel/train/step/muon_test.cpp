// Muon and Lion by name: on meshes that keep matrices whole, and on those that cut them.
#include "triax/optim/muon.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/nn/conv.h"
#include "triax/nn/embedding.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::muon_test {

using namespace test;

TrainOptions options(MeshShape mesh, Zero zero = Zero::off, Algorithm algorithm = Algorithm::muon) {
  auto o = tiny_options(mesh);
  o.step.micro_batch = 4;
  o.lr = {.peak = 1e-2, .low = 1e-2, .warmup = 0};
  o.step.zero = zero, o.step.algorithm = algorithm;
  return o;
}

TEST(MuonOnMeshes, IsThatOfOneRank) {
  for (DType dtype : {f32, bf16, f16}) {
    auto base = options({});
    base.step.dtype = dtype;
    Trace reference = trace(task_of(), reference_of(base));
    EXPECT_TRUE(reference.steps[0].state.contains("block0.up.weight/velocity"));
    EXPECT_FALSE(reference.steps[0].state.contains("block0.up.weight/m"));
    for (const char* name : {"head.table/m", "block1.norm.gamma/v", "block0.up.bias/v"})
      EXPECT_TRUE(reference.steps[0].state.contains(name)) << name;
    for (MeshShape mesh :
         {MeshShape{2, 1, 1}, {4, 1, 1}, {1, 4, 1}, {1, 1, 2}, {2, 1, 2}, {2, 2, 2}})
      for (Zero zero : {Zero::off, Zero::optimizer, Zero::parameters}) {
        auto o = options(mesh, zero);
        o.step.dtype = dtype;
        EXPECT_EQ(difference(task_of(), o, reference), "") << name_of_run(o);
      }
  }
}

TEST(MuonOnMeshes, GroupsAndAverageGoWithIt) {
  auto with = [](MeshShape mesh) {
    auto o = options(mesh);
    o.step.groups = "block0.up.*:lr=0.3,decay=1; *.bias:lr=2", o.step.average = 0.9;
    return o;
  };
  Trace reference = trace(task_of(), reference_of(with({})));
  EXPECT_EQ(difference(task_of(), with({.dp = 2, .pp = 2}), reference), "");
  auto cut = with({.dp = 4, .tp = 2});  // slots end where rates change
  cut.step.zero = Zero::gradients;
  EXPECT_EQ(difference(task_of(), cut, reference), "");
}

TEST(MuonOnMeshes, LionHasItsNameToo) {
  Trace reference = trace(task_of(), reference_of(options({}, Zero::off, Algorithm::lion)));
  EXPECT_TRUE(reference.steps[0].state.contains("block0.up.weight/m"));
  EXPECT_FALSE(reference.steps[0].state.contains("block0.up.weight/v"));
  EXPECT_EQ(difference(task_of(), options({2, 1, 2}, Zero::optimizer, Algorithm::lion), reference),
            "");
}

TEST(MuonOnMeshes, IsResumedOnAnotherMeshAndLearns) {
  TemporaryDirectory directory;
  auto of = [&](MeshShape mesh, int64_t steps, const std::string& out) {
    auto o = options(mesh);
    o.steps = steps, o.out = directory / out;
    return o;
  };
  auto first = of({.dp = 2}, 6, "halves"), second = of({.dp = 2, .tp = 2}, 12, "halves");
  first.step.zero = Zero::parameters, second.step.zero = Zero::optimizer;
  expect_resumed(task_of(), of({}, 12, "straight"), first, second, 1e-4);
  auto losses = train(of({}, 12, "again")).losses;
  EXPECT_LT(losses.back(), losses.front() - 0.1);
}

/// Matrices of every kind, and what is none.
struct Kinds : nn::Module {
  Kinds() {
    child<nn::Embedding>("tokens", 7, 4);
    child<nn::Conv2d>("conv", 3, 6, nn::Conv2dOptions{});
    child<nn::Linear>("hidden", 4, 5);
  }
};

TEST(Slots, NameTheHiddenMatricesAndWhatIsCutOfThem) {
  auto matrices = [](Zero zero) {
    std::vector<std::string> all;
    std::mutex lock;
    run_ranks(2, [&](Communicator& world) {
      Kinds model;
      DataParallel data(model, world, {.zero = zero});
      std::lock_guard guard(lock);
      for (auto& slot : data.slots())
        for (auto& m : slot.matrices)
          all.push_back(
              fmt::format("{} {}x{} {}", m.name, m.rows, m.columns, m.whole() ? "whole" : "cut"));
    });
    std::ranges::sort(all);
    return all;
  };
  EXPECT_EQ(matrices(Zero::off),
            (std::vector<std::string>{"conv.weight 6x27 whole", "conv.weight 6x27 whole",
                                      "hidden.weight 5x4 whole", "hidden.weight 5x4 whole"}));
  auto cut = matrices(Zero::optimizer);
  EXPECT_TRUE(std::ranges::count(cut, "conv.weight 6x27 cut") > 0) << fmt::format("{}", cut.size());
  EXPECT_EQ(cut.size(), 4u);  // both ranks have both, be it nothing of one
}

TEST(Slots, GatherMatricesThatTheyHoldPartsOf) {
  std::mutex lock;
  std::vector<std::vector<float>> gathered;
  run_ranks(3, [&](Communicator& world) {
    Kinds model;
    DataParallel data(model, world, {.zero = Zero::gradients});
    for (auto& slot : data.slots())
      for (auto& m : slot.matrices) {
        ASSERT_TRUE(m.gather);
        Tensor part = slot.weight.narrow(0, m.range.begin, m.range.end - m.range.begin);
        Tensor whole = m.gather(part);
        EXPECT_EQ(whole.shape(), (Shape{m.rows, m.columns}));
        EXPECT_EQ(m.part(whole).to_host<float>(), part.to_host<float>());
        std::lock_guard guard(lock);
        if (m.name == "conv.weight") gathered.push_back(whole.to_host<float>());
      }
  });
  ASSERT_EQ(gathered.size(), 3u);
  Kinds whole;
  whole.materialize(cpu, f32, DataParallelOptions{}.seed);
  for (auto* p : whole.parameters())
    if (p->name == "conv.weight")
      for (auto& values : gathered) EXPECT_EQ(values, p->value.to_host<float>());
}

}  // namespace triax::parallel::muon_test
