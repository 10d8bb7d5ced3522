// Every parameter is held by one pipeline stage, or by both ends if it is tied, for any number of
// stages; and options that say nothing known.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "nn/layer.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/data/data_parallel.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

using namespace test;

struct Stage : nn::Module {
  nn::Parameter& weight = parameter({.name = "weight", .full = {2}, .init = {.std = 0.5}});
};
struct Tied : nn::Module {
  nn::Parameter& table =
      parameter({.name = "table", .full = {3}, .init = {.std = 0.5}, .tied = true});
};

/// A stage of its own for each of `stages`, and a table that is used where `uses_table` says.
void build(int stages, const std::function<bool(int stage)>& uses_table, int also_uses_1 = 1) {
  struct Model : nn::Module {
    explicit Model(int n) {
      for (int s = 0; s < n; ++s) all.push_back(&child<Stage>(fmt::format("stage{}", s)));
    }
    std::vector<Stage*> all;
    Tied& tied = child<Tied>("tied");
  };
  run_ranks(stages, [&](Communicator& world) {
    Mesh mesh(world, {.pp = stages});
    int stage = mesh.pp().rank();
    Model model(stages);
    nn::Layers layers{{.name = "own", .uses = {model.all[size_t(stage)]}}};
    if (uses_table(stage)) layers.push_back({.name = "table", .uses = {&model.tied}});
    if (stage == also_uses_1 && stage != 1)
      layers.push_back({.name = "again", .uses = {model.all[1]}});
    std::vector<nn::Layers> chunks{layers};
    DataParallel data(model, chunks, mesh, {});
    EXPECT_EQ(data.parameter_count(), 2 * stages + 3);
  });
}

TEST(HeldOnce, ByBothEndsOfAnyNumberOfStagesIfTied) {
  for (int stages : {2, 3, 64, 65, 66})
    build(stages, [&](int s) { return s == 0 || s == stages - 1; });
}

TEST(HeldOnce, RefusesOtherHoldersAndNamesThem) {
  const int stages = 66;
  expect_config_error([&] { build(stages, [](int s) { return s == 0; }); },
                      {"tied.table (tied) is used on stage 0; expected stages 0 and 65", "--pp"});
  expect_config_error([&] { build(stages, [](int s) { return s == 0 || s == 64; }); },
                      {"tied.table (tied) is used on stages 0, 64; expected stages 0 and 65"});
  expect_config_error([&] { build(stages, [](int) { return false; }); },
                      {"tied.table (tied) is used on no stage;"});
  expect_config_error(
      [&] {
        build(
            stages, [&](int s) { return s == 0 || s == stages - 1; }, 65);
      },
      {"stage1.weight (not tied) is used on stages 1, 65; expected one stage"});
}

TEST(ZeroStage, OfNoKnownNumberIsRefused) {
  auto alone = single_rank();
  Stage model;
  for (int stage : {7, 4, -1})
    expect_config_error([&] { DataParallel(model, *alone, {.zero = Zero(stage)}); },
                        {fmt::format("ZeRO stage {}; expected 0, 1, 2 or 3", stage)});
}

}  // namespace
}  // namespace triax::parallel
