// What a run will hold is foreseen by running it on a device that has no bytes.
#include "parallel/plan/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "parallel/train/options.h"
#include "tests/examples/minigpt_run.h"
#include "tests/support/temporary_directory.h"

namespace triax::minigpt {
namespace {

using parallel::Demand;
using parallel::Plan;
using parallel::PlanOptions;

/// One of many small runs, drawn by a seed.
Job drawn(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto one_of = [&](std::initializer_list<int> of) {
    return *(of.begin() + int64_t(random() % of.size()));
  };
  Job c;
  c.model = {.layers = one_of({8, 9}),
             .heads = 4,
             .width = one_of({32, 48, 64}),
             .context = one_of({16, 32}),
             .dropout = one_of({0, 1}) ? 0.1 : 0,
             .vocab = one_of({61, 96, 500})};
  Layout layout{.dp = one_of({1, 2, 3}), .pp = one_of({1, 2, 4}), .tp = one_of({1, 2})};
  layout.sequence_parallel = layout.tp > 1 && one_of({0, 1});
  layout.zero = one_of({0, 1, 2, 3});
  const char* schedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved"};
  layout.schedule = schedules[layout.pp == 2 ? one_of({0, 1, 2, 3}) : one_of({0, 1, 2})];
  c.set(layout);
  c.step().micro_batch = one_of({1, 2});
  c.step().global_batch = c.step().micro_batch * layout.dp * one_of({1, 2, 4});
  c.step().dtype = std::array{f32, bf16, f16}[size_t(one_of({0, 1, 2}))];
  bool split = layout.tp > 1 && !layout.sequence_parallel;
  c.step().recompute = parallel::Recompute(split ? one_of({0, 1, 2, 3}) : one_of({0, 1, 2}));
  c.step().offload =
      one_of({0, 0, 0, 1}) ? parallel::Offloaded::optimizer : parallel::Offloaded::nothing;
  if (c.step().offload == parallel::Offloaded::nothing) {
    c.step().algorithm = one_of({0, 1}) ? parallel::Algorithm::lion : parallel::Algorithm::adamw;
    c.step().average = one_of({0, 1}) ? 0.9 : 0;
  }
  resolve(c.train, c.ranks());
  check_options(c.train, c.ranks());
  return c;
}

std::string describe(Job c) {
  return to_toml(settings(c)) + to_toml(parallel::train_settings(c.train));
}

std::vector<Demand> foreseen_of(const Job& c) {
  auto task = task_of(c);
  return foresee(task.build, batch_like(task, c.step().micro_batch), c.step());
}
std::vector<Demand> measured(const Job& c) {
  auto task = task_of(c);
  return measure(task.build, batch_like(task, c.step().micro_batch), c.step());
}

TEST(Plan, ForeseesWhatEveryStageHolds) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    Job c = drawn(seed);
    auto foreseen = foreseen_of(c), found = measured(c);
    ASSERT_EQ(foreseen.size(), found.size());
    for (size_t s = 0; s < found.size(); ++s) {
      auto where = fmt::format("seed {}, stage {}:\n{}", seed, s, describe(c));
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
  Job c = drawn(1);
  c.step().micro_batch = 1, c.step().global_batch = 2 * 40;
  for (auto& schedule : parallel::schedule_names())
    for (int pp : {1, 2, 4}) {
      int zero = pp == 1 ? 0 : 3, chunks = parallel::schedule_named(schedule).chunks;
      if (chunks > 1 && pp == 1) continue;
      c.model.layers = pp * chunks;
      c.set({.dp = 2, .pp = pp, .zero = zero, .schedule = schedule, .chunks = chunks});
      auto foreseen = foreseen_of(c), found = measured(c);
      for (size_t s = 0; s < found.size(); ++s) {
        EXPECT_NEAR(double(foreseen[s].peak), double(found[s].peak), 0.05 * double(found[s].peak))
            << schedule << " of " << pp << ", stage " << s;
        EXPECT_NEAR(foreseen[s].dp.bytes, found[s].dp.bytes, 1e-9 * found[s].dp.bytes);
        EXPECT_NEAR(foreseen[s].tp.bytes, found[s].tp.bytes, 1e-9 * found[s].tp.bytes);
        EXPECT_EQ(foreseen[s].links.bytes, found[s].links.bytes);
      }
    }
}

/// All meshes.
PlanOptions any_mesh() {
  PlanOptions o;
  o.train.step.mesh = {.dp = 0, .pp = 0, .tp = 0};
  return o;
}

TEST(Plan, SortsByWhatFitsAndThenByTime) {
  PlanOptions c = any_mesh();
  c.ranks = 8;
  Job job;
  job.model = {.layers = 4, .heads = 4, .width = 256, .context = 64, .vocab = 96};
  auto task = task_of(job);
  auto whole = plans(task, c).all;
  ASSERT_GT(whole.size(), size_t(20));
  const parallel::Hardware& h = parallel::hardware_named(c.hardware);
  double least = whole.front().need(h), most = 0;
  for (auto& p : whole) least = std::min(least, p.need(h)), most = std::max(most, p.need(h));
  c.memory = fmt::format("{}B", int64_t((least + most) / 2));
  auto [some, refusals] = plans(task, c);
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
  EXPECT_NE(refusals.front().find("pp=8 x chunks=1 = 8 virtual stages of a model of 6 layers"),
            std::string::npos)
      << refusals.front();
}

// Where the host's memory is the only one, what is offloaded into it needs room too.
TEST(Plan, OffloadedStateNeedsTheHostsRoom) {
  PlanOptions c = any_mesh();
  c.train.step.offload = parallel::Offloaded::optimizer;
  Job job;
  job.model = {.layers = 2, .heads = 2, .width = 64, .context = 16, .vocab = 96};
  Plan p = plans(task_of(job), c).all.front();
  int64_t offloaded = p.fullest().peaks[memory::offloaded];
  ASSERT_GT(offloaded, 0);
  EXPECT_EQ(p.need(parallel::hardware_named("h100")), double(p.fullest().peak));
  EXPECT_EQ(p.need(parallel::hardware_named("cpu")), double(p.fullest().peak + offloaded));
}

/// What metrics.jsonl says of a real run, data, validation and all: the largest rank.
int64_t reported(Job c) {
  test::TemporaryDirectory directory;
  c.text.data = directory / "text";
  c.train.out = directory / "run", c.train.metrics = directory / "metrics";
  std::string text;
  for (int i = 0; i < 3000; ++i) text += char('a' + (i * i / 3 + i * 7) % 23);
  test::write_bytes(c.text.data, text);
  train(c, c.ranks());
  std::string metrics = test::read_bytes(c.train.metrics);
  return nlohmann::json::parse(metrics.substr(metrics.rfind("{\"")))["memory_bytes"];
}

TEST(Plan, IsWhatTrainingReports) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    Job c = drawn(seed);
    c.train.steps = 3, c.train.lr.warmup = 0;
    c.train.val_every = c.step().average == 0;  // with averages it keeps the weights aside
    int64_t foreseen = 0, found = reported(c);
    for (auto& stage : foreseen_of(c)) foreseen = std::max(foreseen, stage.peak);
    EXPECT_NEAR(double(foreseen), double(found), 0.05 * double(found)) << describe(c);
  }
}

}  // namespace
}  // namespace triax::minigpt
