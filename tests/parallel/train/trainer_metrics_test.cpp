// Which file a run writes its metrics to.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "core/files.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

using namespace test;

Exit train(const Task& task, const TrainOptions& o) {
  Exit code = Exit::internal;
  run_worlds(1, [&](World& world) { code = Trainer(task, o, world).run(); });
  return code;
}

// They are replaced when the metrics are open already.
TEST(TrainerMetrics, AreNoFileThatTheRunDirectoryKeeps) {
  TemporaryDirectory directory;
  std::filesystem::create_directory_symlink(directory.path(), directory / "link");
  Task task = task_of();
  task.attachments["notes"] = "{}";
  auto o = tiny_options();
  o.out = directory / "run";
  for (const char* name : {"run/config.toml", "run/settings.txt", "run/metrics_path", "run/lock",
                           "run/notes.json", "run/step-3", "run/config.toml.tmp", "run/step-3/x",
                           "link/run/lock", "run/../run/./lock"}) {
    o.metrics = directory / name;
    expect_config_error([&] { train(task, o); },
                        {"metrics: " + o.metrics + ": the run directory keeps"});
    EXPECT_FALSE(disk().is_directory(o.out)) << "what is refused makes nothing";
  }
  o.metrics = directory / "run/mine.jsonl";
  EXPECT_EQ(train(task, o), Exit::ok);
  EXPECT_TRUE(std::filesystem::exists(o.metrics));
}

// A run directory that came from somebody else must not lead to a file of ours.
TEST(TrainerMetrics, OfTheRunDirectoryAreNoLink) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory / "run";
  std::filesystem::create_directory(o.out);
  write_bytes(directory / "mine", "kept");
  std::filesystem::create_symlink(directory / "mine", directory / "run/metrics.jsonl");
  expect_config_error([&] { train(task_of(), o); }, {"run/metrics.jsonl is a link", "--metrics "});
  EXPECT_EQ(read_bytes(directory / "mine"), "kept");
}

TEST(TrainerMetrics, OfADirectoryThatCannotBeMadeAreNamed) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory / std::string(300, 'x');
  expect_error([&] { train(task_of(), o); }, {"files: list " + o.out, "File name too long"},
               Exit::io);
}

TEST(TrainerMetrics, AResumedRunSaysThatTheyGoElsewhere) {
  TemporaryDirectory directory;
  auto said = [&](int64_t steps, const std::string& metrics) {
    auto o = tiny_options();
    o.steps = steps, o.out = directory / "run", o.resume = "auto", o.metrics = metrics;
    testing::internal::CaptureStdout();
    train(task_of(), o);
    return testing::internal::GetCapturedStdout();
  };
  std::string outside = directory / "outside.jsonl", own = directory / "run/metrics.jsonl";
  std::string line = "metrics was";
  EXPECT_EQ(said(2, outside).find(line), std::string::npos);
  EXPECT_EQ(said(3, outside).find(line), std::string::npos);
  std::string third = said(4, "");  // lines are folded to the terminal's width
  std::erase_if(third, [](char c) { return c == ' ' || c == '\n'; });
  EXPECT_NE(third.find("metricswas" + outside + ",now" + own), third.npos) << third;
  EXPECT_EQ(said(5, "").find(line), std::string::npos);
}

/// Held-out samples that take time.
struct Slow : nn::Samples {
  static constexpr std::chrono::milliseconds pause{400};
  int64_t count() const override { return 8; }
  nn::Batch batch(std::span<const int64_t> indices) const override {
    if (indices[0] >= 0) std::this_thread::sleep_for(pause);  // not of blanks
    return noise(8, 4)->batch(indices);
  }
  double weight(int64_t) const override { return 1; }
  std::string identity() const override { return "slow"; }
};

// The run before was stopped in it.
TEST(TrainerMetrics, AValidationThatIsMadeUpForIsNoPartOfAStep) {
  TemporaryDirectory directory;
  Task task = task_of();
  task.held_out = std::make_shared<Slow>();
  auto o = tiny_options();
  o.steps = 4, o.val_every = 2, o.out = directory / "run";
  std::vector<StepRecord> records;
  run_worlds(1, [&](World& world) {
    Trainer trainer(task, o, world);
    trainer.step(), trainer.step();
    trainer.on({.step = [&](Trainer&, const StepRecord& r) { records.push_back(r); }});
    trainer.run();
  });
  ASSERT_EQ(records.size(), 2);
  EXPECT_LT(records[0].seconds, std::chrono::duration<double>(Slow::pause).count());
  EXPECT_FALSE(records[0].val_loss);
  EXPECT_TRUE(records[1].val_loss);
}

}  // namespace
}  // namespace triax::parallel
