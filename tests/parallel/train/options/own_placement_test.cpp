// A placement of layers of a program's own.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "triax/parallel/pipeline/partition.h"
#include "triax/parallel/plan/step_time.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::parallel::own_placement_test {

using Counts = std::vector<int64_t>;

TEST(OwnPlacement, ComesAfterTheFlagAndBeforeTheBalance) {
  Task task = test::task_of();  // layers rows, block0, block1, head
  StepOptions o = test::tiny_options({.dp = 1, .pp = 2}).step;
  o.chunks = 1;
  std::vector<int64_t> first{0};
  Facts facts = probe(task.build, task.samples->batch(first), {});
  EXPECT_EQ(place(facts, o), (Counts{2, 2}));
  size_t costs_seen = 0;
  o.place = [&](const std::vector<double>& costs, const PipelineShape& shape) {
    costs_seen = costs.size();
    return shape.stages == 2 ? Counts{1, 3} : Counts{};
  };
  EXPECT_EQ(place(facts, o), (Counts{1, 3}));
  EXPECT_EQ(costs_seen, 4U);
  o.mesh.pp = 1;  // one stage holds all
  EXPECT_EQ(place(facts, o), (Counts{4}));
  o.mesh.pp = 2;
  o.placement = "3,1";
  EXPECT_EQ(place(facts, o), (Counts{3, 1}));

  o.placement = "";
  o.place = [](auto&, auto&) { return Counts{1, 1}; };  // not "two between the ends"
  test::expect_config_error([&] { place(facts, o); },
                            {"placement", "1,1, adds up to 2", "the 4 layers"});
  o.place = [](auto&, auto&) { return Counts{4, 0}; };
  test::expect_config_error([&] { place(facts, o); }, {"placement: 4,0 leaves the last stage"});
  o.place = [](auto&, auto&) { return Counts{4}; };
  test::expect_config_error([&] { place(facts, o); }, {"placement: 4 has 1 counts"});
}

/// A plan asks once for each shape: as many virtual stages may be other stages.
TEST(OwnPlacement, IsThatOfEachShapeInAPlan) {
  Task task = test::task_of();
  Hardware hardware = hardware_named("cpu");
  StepTimes times(task, hardware);
  StepOptions o = test::tiny_options({.dp = 1, .pp = 2}).step;
  o.schedule = "zb-v", o.chunks = 2;
  o.place = [](auto&, const PipelineShape& shape) {
    return shape.placement == Placement::v ? Counts{2, 0, 1, 1} : Counts{1, 1, 1, 1};
  };
  EXPECT_EQ(times.placement(o), (Counts{2, 0, 1, 1}));
  o.schedule = "interleaved";
  EXPECT_EQ(times.placement(o), (Counts{1, 1, 1, 1}));
}

struct Scale : nn::Module {
  explicit Scale(bool tied)
      : weight(parameter({.name = "weight", .full = {16}, .init = {.std = 1}, .tied = tied})) {}
  nn::Parameter& weight;
};

/// Layers first, a, b and head; `first`, `a`, or both share a weight with the head.
struct Shared : nn::Sequence {
  Shared(const TensorParallel& tp, bool tied, std::vector<std::string> users) {
    auto& scale = child<Scale>("scale", tied);
    auto scaled = [&scale](const Tensor& x) { return x * scale.weight.value; };
    for (std::string name : {"first", "a", "b"})
      if (std::ranges::count(users, name) > 0)
        add(name, {&scale}, [=](const Tensor& x, const nn::Batch& b) {
          return scaled(name == "first" ? b.input : x);
        });
      else add<test::Block>(name, tp);
    auto& head = child<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
    add("head", {&scale, &head},
        [=, &head](const Tensor& x, const nn::Batch& b) { return head(scaled(x), b); });
  }
};

struct Way {
  bool tied;
  std::vector<std::string> users;  ///< beside the head
  int stages;
  std::string schedule = "1f1b";
};
void place_shared(const Way& way) {
  StepOptions o = test::tiny_options({.dp = 1, .pp = way.stages}).step;
  o.schedule = way.schedule, o.chunks = schedule_named(way.schedule).chunks;
  Build build = [&](auto& tp) { return std::make_unique<Shared>(tp, way.tied, way.users); };
  std::vector<int64_t> first{0};
  place(probe(build, test::noise()->batch(first), {}), o);
}

TEST(Placement, SharedParametersAreWhereTheirGradientsAreSummed) {
  place_shared({true, {"first"}, 4});
  place_shared({true, {"first", "b"}, 2});
  place_shared({true, {"first"}, 2, "zb-v"});
  place_shared({false, {"first", "a"}, 1});
  auto refused = [](const Way& way, const std::vector<std::string>& parts) {
    test::expect_config_error([&] { place_shared(way); }, parts);
  };
  refused(
      {true, {"first", "a"}, 4},
      {"pipeline: scale.weight (tied) is used on stages 0, 1, 3; expected stages 0 and 3, which "
       "have the first layer and the last",
       "--placement", "--pp"});
  refused({true, {"first", "a"}, 2, "zb-v"},
          {"is used on stages 0, 1; expected one stage: here stage 0 has the first layer"});
  refused({false, {"first"}, 2}, {"(not tied) is used on stages 0, 1; expected one stage, or"});
}

/// Ten blocks and a head of so many classes; blocks `pair` and the next are one module.
struct LongNet : nn::Sequence {
  LongNet(const TensorParallel& tp, int pair, int64_t classes) {
    auto& twice = child<test::Block>("twice", tp);
    for (int i = 0; i < 10; ++i)
      if (i == pair || i == pair + 1)
        add(fmt::format("block{}", i), {&twice}, [&twice](const Tensor& x, const nn::Batch& b) {
          return twice(x.defined() ? x : b.input);
        });
      else if (i == 0) add("block0", {}, [](const nn::Batch& b) { return b.input; });
      else add<test::Block>(fmt::format("block{}", i), tp);
    add<ClassHead>("head", classes, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

// Where layers that are moved would leave the stage of one that shares their module, the placement
// that counts each chunk alone stays.
TEST(Placement, OfSeveralChunksKeepsSharedModulesTogether) {
  int balanced = 0, kept = 0;
  for (int pair = 1; pair < 9; ++pair)
    for (int64_t classes : {1000, 2000, 3000, 5000}) {
      StepOptions o = test::tiny_options({.dp = 1, .pp = 2}).step;
      o.schedule = "interleaved", o.chunks = 2;
      Build build = [&](auto& tp) { return std::make_unique<LongNet>(tp, pair, classes); };
      std::vector<int64_t> first{0};
      Facts facts = probe(build, test::noise()->batch(first), {});
      std::vector<double> costs;
      for (auto& layer : facts.layers()) costs.push_back(layer.cost());
      Counts even = partition(costs, 4), moved = partition_chunks(costs, o.pipeline());
      auto together = [&](const Counts& counts) {
        o.placement = join(counts, ",");
        bool fine = true;
        try {
          place(facts, o);
        } catch (const Error&) {
          fine = false;
        }
        o.placement = "";
        return fine;
      };
      if (!together(even) && !together(moved)) continue;
      Counts placed = place(facts, o);
      EXPECT_EQ(placed, together(moved) ? moved : even) << pair << ' ' << classes;
      (together(moved) ? balanced : kept) += moved != even;
    }
  EXPECT_GT(balanced, 0);
  EXPECT_GT(kept, 0);
}

}  // namespace triax::parallel::own_placement_test
