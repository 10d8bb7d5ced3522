#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/io/files.h"
#include "triax/parallel/comm/launch/stop_signal.h"
#include "triax/parallel/train/options/option_groups.h"
#include "triax/parallel/train/watch/event_file.h"

namespace triax::parallel::profile_steps_test {

using namespace test;
using nlohmann::json;

constexpr double nap = 0.06;  // seconds

struct Nap : nn::Module {
  explicit Nap(double s) : seconds(s) {}
  Tensor operator()(const Tensor& x) const {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return x;
  }
  double seconds;
};

struct SleepyNet : nn::Sequence {
  SleepyNet(const TensorParallel& tp, double seconds) {
    add<Rows>("rows", tp);
    add<Nap>("nap", seconds);
    add<Block>("block0", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};

TrainOptions options(const std::string& out, const std::string& steps) {
  auto o = tiny_options();
  o.out = out, o.profile = steps;
  return o;
}

Exit train_with(const Task& task, const TrainOptions& o, const Callbacks& callbacks) {
  return train(task, o, [&](Trainer& t) { t.on(callbacks); }).code;
}

json trace_of(const TrainOptions& o) { return json::parse(read_bytes(o.out + "/trace.json")); }

// One rank sleeps in a layer: that is its work, and the other waits for its gradients.
TEST(ProfileSteps, ShowWhoWaitsForWhom) {
  TemporaryDirectory directory;
  auto o = tiny_options({.dp = 2});
  o.out = directory / "run", o.profile = "2-3";
  run_worlds(2, [&](World& world) {
    Task task = task_of();
    double seconds = world.rank() * nap;
    task.build = [=](auto& tp) { return std::make_unique<SleepyNet>(tp, seconds); };
    task.held_out = nullptr;
    Trainer(task, o, world).run();
  });
  json trace = trace_of(o);
  EXPECT_EQ(trace["steps"], json({2, 3}));
  auto spent = [&](size_t rank, const char* how) {
    return trace["ranks"][rank][how].get<double>();
  };
  EXPECT_GE(spent(1, "busy"), 2 * nap);
  EXPECT_GE(spent(0, "waiting") - spent(1, "waiting"), nap) << trace["ranks"];
  EXPECT_LT(spent(0, "busy"), spent(1, "busy"));
  int naps = 0;
  for (auto& e : trace["traceEvents"])
    naps += e["name"] == "nap" && e["pid"] == 2 && e["dur"].get<double>() >= nap * 1e6;
  EXPECT_EQ(naps, 2) << "one forward in each step";
}

// Validation's first batch is tried before.
TEST(ProfileSteps, OfTheFirstStepAreItsSeconds) {
  TemporaryDirectory directory;
  auto o = options(directory / "run", "1");
  Task task = task_of();
  task.build = [](auto& tp) { return std::make_unique<SleepyNet>(tp, nap); };
  double seconds = 0;
  auto first = [&](Trainer&, const StepRecord& r) {
    if (r.result.step == 1) seconds = r.seconds;
  };
  EXPECT_EQ(train_with(task, o, {.step = first}), Exit::ok);
  json rank = trace_of(o)["ranks"][0];
  double told = 0;
  for (const char* how : {"busy", "communicating", "waiting"}) told += rank[how].get<double>();
  EXPECT_GT(seconds, 2 * nap);
  EXPECT_LT(told, seconds + 0.8 * nap) << rank;  // the trial would add a nap or more
}

// Perfetto drops events before time 0, so it is the begin of the rank that begins first.
TEST(ProfileSteps, BeginAtZeroWithTheFirstRank) {
  TemporaryDirectory directory;
  auto o = tiny_options({.dp = 2});
  o.out = directory / "run", o.profile = "1";
  run_worlds(2, [&](World& world) {
    Task task = task_of();
    task.held_out = nullptr;  // else ranks meet before the first step
    Trainer trainer(task, o, world);
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::duration<double>(nap));
    trainer.run();
  });
  json trace = trace_of(o);
  double first = 1e9;
  for (auto& e : trace["traceEvents"])
    if (e.contains("ts")) first = std::min(first, e["ts"].get<double>());
  EXPECT_EQ(first, 0);
}

TEST(ProfileSteps, OfARunThatIsStoppedEndWithIt) {
  TemporaryDirectory directory;
  StopSignal stop;
  auto o = options(directory / "run", "2-9");
  o.steps = 9;
  auto at_3 = [](Trainer&, const StepRecord& r) {
    if (r.result.step == 3) std::raise(SIGTERM);
  };
  EXPECT_EQ(train_with(task_of(), o, {.step = at_3}), Exit::stopped);
  EXPECT_EQ(trace_of(o)["steps"], json({2, 4}));
  // Stopped before: nothing to write.
  o.out = directory / "early", o.profile = "8";
  EXPECT_EQ(train(o).code, Exit::stopped);
  EXPECT_FALSE(std::filesystem::exists(o.out + "/trace.json"));
}

TEST(ProfileSteps, AreRefusedWhereThereAreNone) {
  for (const char* text : {"x", "0", "-3", "3-", "3-2", "2-3-4", "3 ", "", "99999999999999999999"})
    expect_config_error([&] { parse_step_range(text); }, {"profile `", "like 3 or 3-5"});
  TemporaryDirectory directory;
  auto o = options(directory / "run", "3-4");
  expect_config_error([&] { train(o); }, {"profile=3-4 with steps=3", "Valid: steps from 1 to 3"});
  o.profile = "2-3", o.step.graph = true;
  expect_config_error([&] { check_run(o); }, {"profile with graph", "one launch"});
  o = options("", "2");
  expect_config_error([&] { train(o); }, {"profile=2 without a run directory"});
  o = options(directory / "resumed", "");
  EXPECT_EQ(train(o).code, Exit::ok);
  o.resume = "auto", o.steps = 5, o.profile = "2-3";
  EXPECT_EQ(train(o).code, Exit::ok);
  EXPECT_FALSE(std::filesystem::exists(o.out + "/trace.json")) << "they are over";
  o.steps = 7, o.profile = "5-7";  // what is left of them
  EXPECT_EQ(train(o).code, Exit::ok);
  EXPECT_TRUE(std::filesystem::exists(o.out + "/trace.json"));
}

TEST(ProfileSteps, NeedAFileThatCanBeWritten) {
  TemporaryDirectory directory;
  auto o = options(directory / "run", "1-2");
  std::filesystem::create_directories(o.out + "/trace.json");
  expect_error([&] { train(o); }, {"trace.json"}, Exit::cannot_write);
}

// TensorBoard reads the event files of a directory in the order of their names.

/// The one that EventFile makes beside `others`.
std::string made_beside(const std::vector<std::string>& others) {
  test::TemporaryDirectory directory;
  for (auto& name : others) test::write_bytes(directory / name, "");
  EventFile file(directory.path(), 1);
  for (auto& name : disk().list(directory.path()))
    if (std::ranges::count(others, name) == 0) return name;
  return "";
}

TEST(EventFile, SortsBehindOthersThoughTheClockWentBack) {
  const std::string prefix = "events.out.tfevents.";
  std::vector<std::vector<std::string>> cases = {
      {},
      {prefix + "1700000000.123456.host"},
      {prefix + "4000000000.123456.host"},
      {prefix + "4000000000.123456.a", prefix + "4000000001.123456.z", prefix + "1700000000.1.b"},
      {prefix + "4000000000.host.77.0"},  // PyTorch's
      {prefix + "4000000000.123456.host", "metrics.jsonl", "step-3", "zzz"},
  };
  for (auto& others : cases) {
    std::string name = made_beside(others);
    EXPECT_TRUE(name.starts_with(prefix)) << name;
    for (auto& other : others)
      if (other.starts_with(prefix)) {
        EXPECT_LT(other, name);
      }
  }
  test::TemporaryDirectory directory;  // and behind its own
  test::write_bytes(directory / (prefix + "4000000000.123456.host"), "");
  for (int i = 0; i < 3; ++i) EventFile(directory.path(), i);
  EXPECT_EQ(disk().list(directory.path()).size(), 4);
  EXPECT_NE(made_beside({prefix + "x"}), "") << "what is no number is left alone";
}

}  // namespace triax::parallel::profile_steps_test
