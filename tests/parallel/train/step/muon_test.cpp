// Muon and Lion by name: whole matrices on meshes that keep them, a refusal on those that cut them.
#include "optim/muon.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "nn/conv.h"
#include "nn/embedding.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/parity/parity.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

using namespace test;

TrainOptions options(MeshShape mesh, Zero zero = Zero::off, Algorithm algorithm = Algorithm::muon) {
  auto o = tiny_options(mesh);
  o.step.micro_batch = 4;
  o.lr = {.peak = 1e-2, .low = 1e-2, .warmup = 0};
  o.step.zero = zero, o.step.algorithm = algorithm;
  return o;
}

std::string difference(const TrainOptions& o, const Trace& reference) {
  auto d = compare_with_reference(task_of(), o, reference);
  return d ? fmt::format("step {}: {} {}: {}", d->step, d->what, d->name, d->how_much) : "";
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
    for (MeshShape mesh : {MeshShape{2, 1, 1}, {4, 1, 1}, {1, 2, 1}, {1, 4, 1}, {2, 2, 1}})
      for (Zero zero : {Zero::off, Zero::parameters}) {
        if (zero != Zero::off && mesh.dp > 1) continue;
        auto o = options(mesh, zero);
        o.step.dtype = dtype;
        EXPECT_EQ(difference(o, reference), "")
            << fmt::format("dp {} pp {} zero {} {}", mesh.dp, mesh.pp, int(zero), name(dtype));
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
  EXPECT_EQ(difference(with({.dp = 2, .pp = 2}), reference), "");
}

TEST(MuonOnMeshes, CutMatricesAreRefused) {
  auto message = [](MeshShape mesh, Zero zero) {
    auto o = options(mesh, zero);
    resolve(o, mesh.size());
    return error_of([&] { check_options(o, mesh.size()); }, Exit::config);
  };
  EXPECT_EQ(message({1, 1, 2}, Zero::off),
            "optimizer=muon with tp=2\n  Muon needs whole matrices, of which a rank then holds a "
            "part. Valid: --tp 1 and --zero 0; dp and pp may be any.");
  EXPECT_EQ(message({2, 1, 1}, Zero::optimizer).substr(0, 26), "optimizer=muon with zero=1");
  auto o = options({4, 1, 1}, Zero::gradients);  // a program's own is refused by what it is given
  o.step.optimizer = [](auto& slots) { return std::make_unique<optim::Muon>(slots); };
  EXPECT_TRUE(refused(outcome(task_of(), o), "muon: this rank holds", "whole matrices"));
}

TEST(MuonOnMeshes, WhereItCannotBe) {
  auto message = [](const std::function<void(TrainOptions&)>& change) {
    auto o = options({});
    change(o);
    resolve(o, 1);
    return error_of([&] { check_options(o, 1); }, Exit::config);
  };
  EXPECT_EQ(message([](auto& o) { o.step.offload = Offloaded::optimizer; }),
            "offload=optimizer with optimizer=muon\n"
            "  Only AdamW works on what is offloaded. Leave --offload or --optimizer out.");
  EXPECT_EQ(message([](auto& o) { o.step.graph = true, o.launch.device = "cuda"; }).substr(0, 25),
            "graph with optimizer=muon");
  auto drifting = options({.dp = 2});
  drifting.launch.nondeterministic = true;
  resolve(drifting, 2);
  EXPECT_TRUE(error_of([&] { check_options(drifting, 2); }, Exit::config)
                  .starts_with("optimizer=muon with nondeterministic and dp=2\n"));
}

TEST(MuonOnMeshes, LionHasItsNameToo) {
  Trace reference = trace(task_of(), reference_of(options({}, Zero::off, Algorithm::lion)));
  EXPECT_TRUE(reference.steps[0].state.contains("block0.up.weight/m"));
  EXPECT_FALSE(reference.steps[0].state.contains("block0.up.weight/v"));
  EXPECT_EQ(difference(options({2, 1, 2}, Zero::optimizer, Algorithm::lion), reference), "");
}

std::vector<double> losses(TrainOptions o, int64_t steps, const std::string& out) {
  std::vector<double> all;
  o.steps = steps, o.out = out, o.resume = "auto";
  run_worlds(o.step.mesh.size(), [&](World& world) {
    Trainer trainer(task_of(), o, world);
    trainer.on({.step = [&](Trainer&, const StepRecord& r) { all.push_back(r.result.loss); }});
    trainer.run();
  });
  return all;
}

TEST(MuonOnMeshes, IsResumedOnAnotherMeshAndLearns) {
  TemporaryDirectory directory;
  auto straight = losses(options({}), 12, directory / "straight");
  auto all = losses(options({.dp = 2}), 6, directory / "halves");
  for (double loss : losses(options({.pp = 2}), 12, directory / "halves")) all.push_back(loss);
  ASSERT_EQ(all.size(), straight.size());
  for (size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], straight[i], 1e-4) << i;
  EXPECT_LT(straight.back(), straight.front() - 0.1);
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
}

}  // namespace
}  // namespace triax::parallel
