// What a run will hold is foreseen by running it on a device that has no bytes.
#include "triax/parallel/plan/plan.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/temporary_directory.h"
#include "triax/parallel/plan/candidates.h"
#include "triax/parallel/plan/step_time.h"
#include "triax/parallel/train/options/options.h"

namespace triax::minigpt::plan_test {

using parallel::ContextForm;
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

TEST(Plan, ForeseesRowsOverRanks) {
  for (auto form : {ContextForm::ring, ContextForm::heads, ContextForm::gather})
    for (auto mesh :
         {parallel::MeshShape{.cp = 2}, {.dp = 2, .cp = 4}, {.pp = 2, .tp = 2, .cp = 2}}) {
      Job c = drawn(3);
      c.set({.dp = mesh.dp, .pp = mesh.pp, .tp = mesh.tp, .schedule = "1f1b"});
      c.step().mesh.cp = mesh.cp, c.step().cp_form = form;
      c.step().micro_batch = 2, c.step().global_batch = 8 * mesh.dp;
      auto foreseen = foreseen_of(c), found = measured(c);
      for (size_t s = 0; s < found.size(); ++s) {
        auto where = fmt::format("{}, form {}, stage {}", str(mesh), int(form), s);
        EXPECT_NEAR(double(foreseen[s].peak), double(found[s].peak), 0.05 * double(found[s].peak))
            << where;
        EXPECT_EQ(foreseen[s].cp.bytes, found[s].cp.bytes) << where;
        EXPECT_GT(found[s].cp.bytes, 0) << where;
        EXPECT_EQ(foreseen[s].dp.bytes, found[s].dp.bytes) << where;
      }
    }
}

/// All meshes and stages of ZeRO.
PlanOptions any_mesh() {
  PlanOptions o;
  o.train.step.mesh = {.dp = 0, .pp = 0, .tp = 0};
  o.train.step.micro_batch = 1, o.train.step.chunks = 1;
  o.given = {"recompute", "sequence-parallel"};
  return o;
}

/// All that plan looks for.
PlanOptions anything() {
  PlanOptions o = any_mesh();
  o.train.step.micro_batch = 0, o.train.step.chunks = 0, o.train.step.schedule.clear();
  o.given.clear();
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
  const parallel::Hardware h = parallel::hardware_named(c.hardware);
  double least = whole.front().need(h), most = 0;
  for (auto& p : whole) least = std::min(least, p.need(h)), most = std::max(most, p.need(h));
  c.memory = fmt::format("{}B", int64_t((least + most) / 2));
  auto found = plans(task, c);
  auto& some = found.all;
  auto& refusals = found.refusals;
  ASSERT_EQ(some.size(), whole.size());
  EXPECT_LE(some.front().need(h), found.budget);
  EXPECT_GT(some.back().need(h), found.budget);
  for (size_t i = 1; i < some.size(); ++i) {
    const Plan &a = some[i - 1], &b = some[i];
    if (a.need(h) > found.budget) {
      EXPECT_GE(b.need(h), a.need(h));
    } else if (found.fits(b) && i > 1) {
      EXPECT_LE(a.time.total(), b.time.total());
    }
  }
  ASSERT_FALSE(refusals.empty());
  EXPECT_NE(refusals.front().find("pp=8 x chunks=1 = 8 virtual stages of a model of 6 layers"),
            std::string::npos)
      << refusals.front();
}

// A search rehearses some stages and few micro-batches: the fullest stage must be among them. It is
// another one where many micro-batches wait for their weight gradients.
TEST(Plan, FindsTheFullestStageOfEverySchedule) {
  using parallel::Recompute;
  struct Pipe {
    ModelConfig model;
    int pp;
    int64_t global_batch;
  };
  const Pipe pipes[] = {
      {{.layers = 14, .heads = 4, .width = 64, .context = 16, .vocab = 500}, 4, 40},
      {{.layers = 22, .heads = 2, .width = 64, .context = 128, .vocab = 101}, 8, 24}};
  for (auto& [model, pp, global_batch] : pipes) {
    Job job;
    job.model = model;
    auto task = task_of(job);
    for (auto recompute : {Recompute::off, Recompute::selective, Recompute::block})
      for (auto& schedule : parallel::schedule_names()) {
        PlanOptions o = any_mesh();
        auto& step = o.train.step;
        step.mesh = {.dp = 1, .pp = pp, .tp = 1};
        step.schedule = schedule, step.chunks = parallel::schedule_named(schedule).chunks;
        step.recompute = recompute, o.given = {"recompute"};
        step.global_batch = global_batch, o.hardware = "cpu";  // as foresee() below
        Plan p = plans(task, o).all.at(0);
        int64_t most = 0;
        for (auto& stage : foresee(task.build, batch_like(task, 1), p.options.step))
          most = std::max(most, stage.peak);
        EXPECT_NEAR(double(p.fullest().peak), double(most), 0.03 * double(most))
            << schedule << " on " << pp << " stages, recompute " << int(recompute);
      }
  }
}

// What is said to be needed is needed, also where a search ends a rehearsal at the first stage that
// is over the budget: here the last one has the table.
TEST(Plan, SaysWhatTheFullestStageNeeds) {
  Job job;
  job.model = {.layers = 14, .heads = 4, .width = 64, .context = 64, .vocab = 50000};
  auto task = task_of(job);
  PlanOptions o = any_mesh();
  o.train.step.mesh = {.dp = 1, .pp = 4, .tp = 1};
  o.train.step.global_batch = 8, o.hardware = "cpu";
  double needs = plans(task, o).all.at(0).need(parallel::hardware_named("cpu"));
  for (const char* memory : {"4MB", "7MB", "20MB"}) {
    o.memory = memory;
    EXPECT_EQ(plans(task, o).all.at(0).need(parallel::hardware_named("cpu")), needs) << memory;
  }
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

TEST(Plan, PrintsAnObjectForEachCandidate) {
  Job job;
  job.model = {.layers = 2, .heads = 2, .width = 64, .context = 16, .vocab = 96};
  PlanOptions o = anything();
  o.ranks = 2, o.json = true, o.hardware = "a100";
  auto task = task_of(job);
  size_t count = plans(task, o).all.size();
  testing::internal::CaptureStdout();
  EXPECT_EQ(plan(task, o).all.size(), count);
  std::istringstream lines(testing::internal::GetCapturedStdout());
  size_t printed = 0;
  for (std::string line; std::getline(lines, line); ++printed) {
    auto p = nlohmann::json::parse(line);
    EXPECT_EQ(p["dp"].get<int>() * p["pp"].get<int>() * p["tp"].get<int>(), 2);
    EXPECT_EQ(p["global_batch"], 2);
    double tokens = 2 * 16 / p["step_seconds"].get<double>();
    EXPECT_NEAR(p["tokens_per_second"], tokens, 1e-6 * tokens);
    EXPECT_GT(p["mfu"], 0);
    EXPECT_LT(p["mfu"], 1);
    EXPECT_GT(p["memory_bytes"], 0);
    EXPECT_TRUE(p["fits"].get<bool>());
    for (auto* key :
         {"zero", "schedule", "chunks", "micro_batch", "recompute", "sequence_parallel"})
      EXPECT_TRUE(p.contains(key)) << key;
  }
  EXPECT_EQ(printed, count);
  EXPECT_GT(printed, size_t(10));
}

/// Between nodes a ring passes keys beside attention to others; cores of one node have to move
/// them.
TEST(Plan, RingsHideBehindAttentionWhereCardsMoveThem) {
  Job job;
  job.model = {.layers = 2, .heads = 2, .width = 32, .context = 512, .vocab = 96};
  job.step().mesh = {.cp = 2}, job.step().micro_batch = 1;
  resolve(job.train, 2);
  auto task = task_of(job);
  auto tensor = [&](ContextForm form, int per_node, double network) {
    parallel::Hardware h = parallel::hardware_named("cpu");
    h.per_node = per_node, h.network = network, h.latency = 0;
    auto o = job.step();
    o.cp_form = form;
    return parallel::StepTimes(task, h)(o).tensor;
  };
  EXPECT_EQ(tensor(ContextForm::ring, 1, 1e12), 0);
  EXPECT_GT(tensor(ContextForm::gather, 1, 1e12), 0);
  EXPECT_GT(tensor(ContextForm::ring, 2, 1e12), 0);
  EXPECT_GT(tensor(ContextForm::ring, 1, 1e6), 0.9 * tensor(ContextForm::gather, 1, 1e6));
}

TEST(Plan, TriesEveryCpIfAskedTo) {
  Job job;
  job.model = {.layers = 2, .heads = 2, .width = 64, .context = 16, .vocab = 96};
  auto sizes = [&](int cp) {
    PlanOptions o = any_mesh();
    o.ranks = 8, o.train.step.mesh.cp = cp;
    std::set<int> found;
    for (auto& p : plans(task_of(job), o).all) {
      EXPECT_EQ(p.options.step.mesh.size(), 8);
      found.insert(p.options.step.mesh.cp);
    }
    return found;
  };
  EXPECT_EQ(sizes(1), std::set{1});
  EXPECT_EQ(sizes(4), std::set{4});
  EXPECT_EQ(sizes(0), (std::set{1, 2, 4, 8}));
}

// The wide search leaves out what it need not rehearse: the best of it is the best of all.
TEST(Plan, FindsWhatNarrowSearchesFind) {
  Job job;
  job.model = {.layers = 8, .heads = 4, .width = 256, .context = 64, .vocab = 96};
  auto task = task_of(job);
  PlanOptions wide = anything();
  wide.ranks = 8, wide.hardware = "h100", wide.top = 3, wide.train.step.global_batch = 32;
  wide.memory = "22MB", wide.given = {"offload"};
  auto found = plans(task, wide);
  ASSERT_GT(found.candidates, size_t(400));
  EXPECT_LT(found.all.size(), found.candidates / 4);
  ASSERT_LE(found.all.front().need(found.hardware), found.budget);
  auto fastest = [](const parallel::Plans& some) {
    double time = 1e300;
    for (auto& p : some.all)
      if (some.fits(p)) time = std::min(time, p.time.total());
    return time;
  };
  double best = 1e300;
  for (int micro : {1, 2, 4, 8, 16, 32})
    for (auto recompute :
         {parallel::Recompute::off, parallel::Recompute::selective, parallel::Recompute::block})
      for (const char* schedule : {"1f1b", "zb-h1"})
        for (bool sequence : {false, true}) {
          PlanOptions narrow = wide;
          parallel::StepOptions& s = narrow.train.step;
          s.micro_batch = micro, s.recompute = recompute, s.schedule = schedule, s.chunks = 1;
          s.sequence_parallel = sequence;
          narrow.given = {"recompute", "sequence-parallel", "offload"};
          narrow.top = 1000;
          try {
            auto some = plans(task, narrow);
            best = std::min(best, fastest(some));
          } catch (const Error&) {  // of no mesh
          }
        }
  EXPECT_LE(fastest(found), best * (1 + 1e-9));
  EXPECT_LT(best, 1e300);
}

/// What the search skips without a rehearsal would not have fitted: its bounds are below what is
/// held, with tied ends on one stage of a V, with optimizers whose state is not known, and with
/// frozen parameters.
TEST(Plan, BoundsAreBelowWhatIsHeld) {
  using enum parallel::Algorithm;
  for (auto& [algorithm, groups] :
       {std::pair{adamw, ""}, {lion, ""}, {adamw, "*.bias:lr=2; *:frozen"}}) {
    Job job;
    job.model = {.layers = 4, .heads = 2, .width = 64, .context = 16, .vocab = 2000};
    auto task = task_of(job);
    PlanOptions o = anything();
    o.ranks = 4, o.train.step.global_batch = 16, o.train.step.algorithm = algorithm;
    o.train.step.groups = groups;
    auto hardware = parallel::hardware_named("h100");
    parallel::StepTimes times(task, hardware);
    auto all = candidates(o, hardware, times).all;
    std::vector<parallel::Rehearsed> held;
    for (size_t i = 0; i < all.size(); i += 1 + all.size() / 150) {
      auto t = all[i].options(o.train);
      resolve(t, o.ranks);
      auto& r = held.emplace_back(parallel::Rehearsed{all[i]});
      for (auto& d : foresee(task.build, batch_like(task, t.step.micro_batch), t.step))
        r.peaks.push_back({int(r.peaks.size()), double(d.peak)});
    }
    ASSERT_GT(held.size(), 20U);
    for (auto& r : held) {
      auto& c = r.candidate;
      auto what = fmt::format("{}x{}x{} zero {} {} chunks {} micro {} recompute {}", c.mesh.dp,
                              c.mesh.pp, c.mesh.tp, int(c.zero), c.schedule, c.chunks,
                              c.micro_batch, int(c.recompute));
      double most = std::ranges::max(r.peaks, {}, [](auto& p) { return p.second; }).second;
      EXPECT_LE(r.candidate.least, most) << what;
      for (auto& other : held) EXPECT_LE(least_beside(r.candidate, other), most) << what;
    }
  }
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

}  // namespace triax::minigpt::plan_test
