// What a run will hold is foreseen by running it on a device that has no bytes.
#include "examples/minigpt/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "core/check.h"
#include "examples/minigpt/rehearsal.h"
#include "examples/minigpt/train.h"
#include "parallel/comm/launch/world.h"
#include "tests/support/temporary_directory.h"

namespace triax::minigpt {
namespace {

/// One of many small runs, drawn by a seed.
TrainConfig drawn(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto one_of = [&](std::initializer_list<int64_t> of) {
    return *(of.begin() + int64_t(random() % of.size()));
  };
  TrainConfig c{.model = {.layers = one_of({8, 9}),
                          .heads = 4,
                          .width = one_of({32, 48, 64}),
                          .context = one_of({16, 32}),
                          .dropout = one_of({0, 1}) ? 0.1 : 0,
                          .vocab = one_of({61, 96, 500})}};
  c.mesh = {.dp = one_of({1, 2, 3}), .pp = one_of({1, 2, 4}), .tp = one_of({1, 2})};
  c.mesh.sequence_parallel = c.mesh.tp > 1 && one_of({0, 1});
  c.mesh.zero = one_of({0, 1, 2, 3});
  const char* schedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved"};
  c.mesh.schedule = schedules[c.mesh.pp == 2 ? one_of({0, 1, 2, 3}) : one_of({0, 1, 2})];
  c.micro_batch = one_of({1, 2});
  c.global_batch = c.micro_batch * c.mesh.dp * one_of({1, 2, 4});
  const char* precisions[] = {"fp32", "bf16", "fp16"};
  c.precision = precisions[one_of({0, 1, 2})];
  bool split = c.mesh.tp > 1 && !c.mesh.sequence_parallel;
  const char* remade[] = {"off", "selective", "block", "block-split"};
  c.recompute = remade[split ? one_of({0, 1, 2, 3}) : one_of({0, 1, 2})];
  c.offload = one_of({0, 0, 0, 1}) ? "optimizer" : "off";
  c.comm = "threads";
  c.ranks = c.mesh.dp * c.mesh.pp * c.mesh.tp;
  resolve(c, c.ranks, "plan");
  validate(c, c.ranks);
  return c;
}

TEST(Plan, ForeseesWhatEveryStageHolds) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    TrainConfig c = drawn(seed);
    auto foreseen = foresee(c), found = measure(c);
    ASSERT_EQ(foreseen.size(), found.size());
    for (size_t s = 0; s < found.size(); ++s) {
      auto where = fmt::format("seed {}, stage {}:\n{}", seed, s, to_toml(c));
      EXPECT_NEAR(double(foreseen[s].peak), double(found[s].peak), 0.05 * double(found[s].peak))
          << where;
      for (int k = 0; k < memory::kinds; ++k)
        EXPECT_NEAR(double(foreseen[s].peaks[size_t(k)]), double(found[s].peaks[size_t(k)]),
                    0.05 * double(found[s].peak))
            << where << "kind " << k;
      EXPECT_EQ(foreseen[s].tp.bytes, found[s].tp.bytes) << where;
      EXPECT_EQ(foreseen[s].dp.bytes, found[s].dp.bytes) << where;
      EXPECT_EQ(foreseen[s].links.bytes, found[s].links.bytes) << where;
    }
  }
}

TEST(Plan, ForeseesManyMicroBatchesFromAFew) {
  TrainConfig c = drawn(1);
  c.micro_batch = 1, c.global_batch = 2 * 40;
  for (const char* schedule : {"1f1b", "zb-h1", "gpipe", "interleaved", "zb-interleaved"})
    for (int64_t pp : {1, 2, 4}) {
      bool parts =
          schedule == std::string("interleaved") || schedule == std::string("zb-interleaved");
      if (parts && pp == 1) continue;
      int64_t zero = pp == 1 ? 0 : 3, chunks = parts ? 2 : 1;
      c.model.layers = pp * chunks;
      c.mesh = {.dp = 2, .pp = pp, .tp = 1, .zero = zero, .schedule = schedule, .chunks = chunks};
      auto foreseen = foresee(c), found = measure(c);
      for (size_t s = 0; s < found.size(); ++s) {
        EXPECT_NEAR(double(foreseen[s].peak), double(found[s].peak), 0.05 * double(found[s].peak))
            << schedule << " of " << pp << ", stage " << s;
        EXPECT_NEAR(foreseen[s].dp.bytes, found[s].dp.bytes, 1e-9 * found[s].dp.bytes);
        EXPECT_NEAR(foreseen[s].tp.bytes, found[s].tp.bytes, 1e-9 * found[s].tp.bytes);
        EXPECT_EQ(foreseen[s].links.bytes, found[s].links.bytes);
      }
    }
}

TEST(Plan, SortsByWhatFitsAndThenByTime) {
  PlanConfig c;
  plan_verb(c);  // its defaults: all meshes
  c.ranks = 8, c.train.model = {.layers = 4, .heads = 4, .width = 256, .context = 64, .vocab = 96};
  c.train.data = "text";
  auto whole = plans(c).all;
  ASSERT_GT(whole.size(), size_t(20));
  const Hardware& h = hardware_named(c.hardware);
  double least = whole.front().need(h), most = 0;
  for (auto& p : whole) least = std::min(least, p.need(h)), most = std::max(most, p.need(h));
  c.memory = fmt::format("{}B", int64_t((least + most) / 2));
  auto [some, refusals] = plans(c);
  ASSERT_EQ(some.size(), whole.size());
  EXPECT_LE(some.front().need(h), budget(c));
  EXPECT_GT(some.back().need(h), budget(c));
  for (size_t i = 1; i < some.size(); ++i) {
    const Plan &a = some[i - 1], &b = some[i];
    if (a.need(h) > budget(c)) {
      EXPECT_GE(b.need(h), a.need(h));
    } else if (b.need(h) <= budget(c)) {
      EXPECT_LE(a.time.total(), b.time.total());
    }
  }
  ASSERT_FALSE(refusals.empty());
  EXPECT_NE(refusals.front().find("pp=8 x chunks=1 pieces of a model of 4 blocks"),
            std::string::npos)
      << refusals.front();
}

// Where the host's memory is the only one, what is offloaded into it needs room too.
TEST(Plan, OffloadedStateNeedsTheHostsRoom) {
  PlanConfig c;
  plan_verb(c);
  c.train.model = {.layers = 2, .heads = 2, .width = 64, .context = 16, .vocab = 96};
  c.train.data = "text", c.train.offload = "optimizer";
  Plan p = plans(c).all.front();
  int64_t offloaded = p.fullest().peaks[memory::offloaded];
  ASSERT_GT(offloaded, 0);
  EXPECT_EQ(p.need(hardware_named("h100")), double(p.fullest().peak));
  EXPECT_EQ(p.need(hardware_named("cpu")), double(p.fullest().peak + offloaded));
}

/// What metrics.jsonl says of a real run, data, validation and all: the largest rank.
int64_t reported(TrainConfig c) {
  test::TemporaryDirectory directory;
  c.data = directory / "text", c.out = directory / "run", c.metrics = directory / "metrics";
  std::string text;
  for (int i = 0; i < 3000; ++i) text += char('a' + (i * i / 3 + i * 7) % 23);
  test::write_bytes(c.data, text);
  testing::internal::CaptureStdout();
  parallel::run_worlds(int(c.ranks),
                       [&](parallel::World& world) { train(c, world.comm(), world.host()); });
  testing::internal::GetCapturedStdout();
  std::string metrics = test::read_bytes(c.metrics);
  return nlohmann::json::parse(metrics.substr(metrics.rfind("{\"")))["memory_bytes"];
}

TEST(Plan, IsWhatTrainingReports) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    TrainConfig c = drawn(seed);
    c.steps = 3, c.warmup = 0, c.val_every = 1;
    int64_t foreseen = 0, found = reported(c);
    for (auto& stage : foresee(c)) foreseen = std::max(foreseen, stage.peak);
    EXPECT_NEAR(double(foreseen), double(found), 0.05 * double(found)) << to_toml(c);
  }
}

}  // namespace
}  // namespace triax::minigpt
