// Parameter groups: what is written, what is refused, and the same training on every mesh.
#include "triax/parallel/train/options/groups.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/optim/lion.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::groups_test {

using namespace test;

TEST(Groups, AreReadFromAText) {
  auto groups = parse_groups("head.*:lr=0.1,decay=0;  *.bias : lr = 2 ;x:decay=1e-2");
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].match, "head.*");
  EXPECT_EQ(groups[0].lr, 0.1);
  EXPECT_EQ(groups[0].weight_decay, 0);
  EXPECT_EQ(groups[1].match, "*.bias");
  EXPECT_EQ(groups[1].lr, 2);
  EXPECT_EQ(groups[1].weight_decay, std::nullopt);
  EXPECT_EQ(groups[2].lr, 1);
  EXPECT_EQ(groups[2].weight_decay, 0.01);
  EXPECT_TRUE(parse_groups(" ").empty());
}

TEST(Groups, TextsThatAreNone) {
  auto message = [](const std::string& text) {
    TrainOptions o;
    o.step.groups = text;
    resolve(o, 1);
    return error_of([&] { check_options(o, 1); }, Exit::config);
  };
  EXPECT_EQ(message("head.*"),
            "groups: `head.*`; expected PATTERN:lr=X,decay=X or PATTERN:frozen; ..., such as "
            "*norm*:lr=2,decay=0; *:frozen");
  EXPECT_EQ(message("a:lr=1;"), message(":lr=1").replace(9, 5, ""));
  EXPECT_EQ(message("a:wd=1"),
            "groups: `a:wd=1` has `wd=1`; expected lr=X or decay=X, each once, or frozen");
  EXPECT_EQ(message("a:frozen,lr=1"),
            "groups: `a:frozen,lr=1` has `frozen`; expected lr=X or decay=X, each once, or frozen");
  EXPECT_EQ(message("a:lr=1,lr=2"),
            "groups: `a:lr=1,lr=2` has `lr=2`; expected lr=X or decay=X, each once, or frozen");
  EXPECT_EQ(message("a:"), "groups: `a:` has ``; expected lr=X or decay=X, each once, or frozen");
  for (const char* number : {"x", "-1", "inf", "nan", "1x", ""})
    EXPECT_EQ(message(fmt::format("a:lr={}", number)),
              fmt::format("groups: `a:lr={}` has the value `{}`; expected a number from 0", number,
                          number));
}

struct Leaf : nn::Module {
  Leaf() {
    parameter({.name = "weight", .full = {2, 2}, .decay = true});
    parameter({.name = "bias", .full = {2}});
  }
};
struct Tree : nn::Module {
  Tree() { child<Leaf>("first"), child<Leaf>("second"), bind(1); }
};

TEST(Groups, TheFirstThatMatchesCounts) {
  Tree tree;
  apply_groups(tree, "second.bias:lr=3; *.b*s:lr=2,decay=0.5; *ir*w*t:decay=0");
  auto all = tree.parameters();  // first.weight, first.bias, second.weight, second.bias
  std::vector<double> lr;
  std::vector<std::optional<double>> decay;
  for (auto* p : all) lr.push_back(p->lr), decay.push_back(p->weight_decay);
  EXPECT_EQ(lr, (std::vector<double>{1, 2, 1, 3}));
  EXPECT_EQ(decay, (std::vector<std::optional<double>>{0., 0.5, {}, {}}));
}

TEST(Groups, StarsTakeTheFirstPlaceThatFits) {
  Tree tree;
  std::string stars(40, '*');  // tried at all places they would take years
  apply_groups(tree, stars + "gh" + stars + "t:lr=2; first*bia*s:lr=3; *" + stars + ":lr=4");
  std::vector<double> lr;
  for (auto* p : tree.parameters()) lr.push_back(p->lr);
  EXPECT_EQ(lr, (std::vector<double>{2, 3, 2, 4}));
  for (const char* text : {"*gh*gh:lr=2", "first.bia*as:lr=2", "*second.bias.*:lr=2"}) {
    Tree other;
    EXPECT_THROW(apply_groups(other, text), Error) << text;
  }
}

TEST(Groups, ThatMatchNothing) {
  auto message = [](const std::string& text) {
    Tree tree;
    return error_of([&] { apply_groups(tree, text); }, Exit::config);
  };
  std::string all = "\n  Parameters: first.weight, first.bias, second.weight, second.bias";
  EXPECT_EQ(message("first.wieght:lr=2"),
            "groups: `first.wieght` matches no parameter; the nearest is first.weight" + all);
  EXPECT_EQ(message("secnod.*:lr=2"),
            "groups: `secnod.*` matches no parameter; the nearest is second.*" + all);
  EXPECT_EQ(message("*.weight:lr=2; third.*:lr=2"), "groups: `third.*` matches no parameter" + all);
  EXPECT_EQ(message("*:lr=2; *.bias:lr=3"),
            "groups: `*.bias` matches no parameter that no group before it has; expected it before "
            "them");
}

// A stage of a pipeline holds only some of the parameters.
TEST(Groups, EveryMeshRefusesAlike) {
  auto o = tiny_options({.dp = 1});
  o.step.groups = "haed.table:lr=2";
  std::string one = outcome(task_of(), o);
  EXPECT_TRUE(refused(one, "groups: `haed.table` matches no parameter; the nearest is head.table",
                      "block0.norm.gamma"));
  for (MeshShape mesh : {MeshShape{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}}) {
    o.step.mesh = mesh;
    o.step.micro_batch = 4;
    EXPECT_EQ(outcome(task_of(), o), one);
    auto fits = o;
    fits.step.groups = "head.*:lr=2; block0.*:decay=0.1";
    EXPECT_EQ(outcome(task_of(), fits), "");
  }
}

constexpr const char* groups =
    "block0.*.bias:lr=0; *.bias:lr=3,decay=0.5; block1.up.weight:lr=0.2,decay=0; head.*:decay=2";

TrainOptions options(MeshShape mesh, Zero zero) {
  auto o = tiny_options(mesh);
  o.step.micro_batch = 4, o.lr.warmup = 0;
  o.lr.peak = o.lr.low = 1e-2;
  o.step.zero = zero, o.step.groups = groups;
  return o;
}

TEST(Groups, TrainAlikeOnEveryMesh) {
  const optim::MakeOptimizer lion = [](auto& slots) {
    return std::make_unique<optim::Lion>(slots);
  };
  for (auto& optimizer : {optim::MakeOptimizer(), lion}) {
    auto base = options({}, Zero::off);
    base.step.optimizer = optimizer;
    Trace reference = trace(task_of(), reference_of(base));
    for (MeshShape mesh : {MeshShape{2, 1, 1}, {4, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}})
      for (Zero zero : {Zero::off, Zero::optimizer, Zero::gradients, Zero::parameters}) {
        auto o = options(mesh, zero);
        o.step.optimizer = optimizer;
        EXPECT_EQ(difference(task_of(), o, reference), "") << name_of_run(o);
      }
  }
}

TEST(Groups, TrainAlikeOffloadedAndInHalfPrecision) {
  TemporaryDirectory directory;
  for (DType dtype : {f32, f16}) {
    auto base = options({}, Zero::off);
    base.step.dtype = dtype;
    Trace reference = trace(task_of(), reference_of(base));
    for (auto what : {Offloaded::nothing, Offloaded::optimizer, Offloaded::parameters})
      for (const std::string& files : {std::string(), directory.path()}) {
        if (what == Offloaded::nothing && !files.empty()) continue;
        bool all = what == Offloaded::parameters;
        auto o = options({.dp = 2}, all ? Zero::parameters : Zero::optimizer);
        o.step.dtype = dtype, o.step.offload = what, o.step.offload_dir = files;
        EXPECT_EQ(difference(task_of(), o, reference), "") << name(dtype) << int(what) << files;
      }
  }
}

// What a group says happens: weights with learning rate 0 stay, without weight decay too.
TEST(Groups, ARateOfNoneMovesNothing) {
  auto o = options({.dp = 2, .pp = 2}, Zero::optimizer);
  o.step.groups = "block1.*:lr=0";
  Trace run = trace(task_of(), o);
  for (auto& [name, whole] : run.initial) {
    if (name.find('/') != name.npos) continue;
    bool same = whole.values == run.steps.back().state.at(name).values;
    EXPECT_EQ(same, name.starts_with("block1.")) << name;
  }
}

// Groups cut the optimizer's slots elsewhere on every mesh; a checkpoint knows nothing of slots.
TEST(Groups, AreResumedOnAnotherMesh) {
  TemporaryDirectory directory;
  auto o = options({.dp = 1}, Zero::off);
  o.steps = 6, o.lr.warmup = 0;
  auto half = options({.dp = 2, .tp = 2}, Zero::gradients);
  half.steps = 3, half.out = directory / "run";
  auto rest = options({.dp = 2, .pp = 2}, Zero::optimizer);
  rest.steps = 6;
  expect_resumed(task_of(), o, half, rest);
}

}  // namespace triax::parallel::groups_test
