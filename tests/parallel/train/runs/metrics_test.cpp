// metrics.jsonl: what its lines hold, and which lines of an older run stay.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/io/files.h"
#include "triax/parallel/train/runs/report.h"

namespace triax::parallel::metrics_test {

using namespace test;
using Owner = Metrics::Place::Owner;

StepRecord record(int64_t step) {
  StepRecord r{.result = {.step = step, .loss = 0.1, .grad_norm = 1e-300, .lr = 1. / 3},
               .seconds = 0.5};
  r.result.weight = 48, r.result.loss_scale = 65536, r.result.memory_bytes = 1e10;
  return r;
}

struct MetricsTest : testing::Test {
  TemporaryDirectory dir;
  std::string path = dir / "metrics.jsonl";

  Metrics open(int64_t step, Owner owner = Owner::this_run) const {
    return Metrics({.path = path, .unit = "tokens", .owner = owner}, step);
  }
  void write(int64_t from, int64_t to, Owner owner = Owner::this_run) const {
    Metrics m = open(from - 1, owner);
    for (int64_t step = from; step <= to; ++step) m.write(record(step));
  }
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> all;
    std::istringstream text(read_bytes(path));
    for (std::string line; std::getline(text, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> all;
    for (auto& line : lines()) all.push_back(line["step"]);
    return all;
  }
  using Steps = std::vector<int64_t>;
};

TEST_F(MetricsTest, NumbersReadBackExactly) {
  Metrics m = open(0);
  StepRecord skipped = record(2);
  skipped.result.loss = NAN, skipped.result.grad_norm = INFINITY, skipped.result.skipped = true;
  skipped.result.overflow = "block0.up.weight of rank 1";
  skipped.val_loss = 0.3;
  m.write(record(1));
  m.write(skipped);
  auto all = lines();  // a line is there as soon as it is written
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0], (nlohmann::json{{"step", 1},
                                    {"loss", 0.1},
                                    {"grad_norm", 1e-300},
                                    {"lr", 1. / 3},
                                    {"loss_scale", 65536},
                                    {"skipped", false},
                                    {"tokens", 48},
                                    {"seconds", 0.5},
                                    {"tokens_per_second", 96},
                                    {"memory_bytes", 10000000000}}));
  EXPECT_TRUE(all[1]["loss"].is_null() && all[1]["grad_norm"].is_null());
  EXPECT_EQ(all[1]["skipped"], true);
  EXPECT_EQ(all[1]["overflow"], "block0.up.weight of rank 1");
  EXPECT_EQ(all[1]["val_loss"], 0.3);
}

TEST_F(MetricsTest, NamesAreEscaped) {
  StepRecord r = record(1);
  r.result.overflow = "a \"b\" \\ c";
  Metrics({.path = path, .unit = "\"frames\"", .owner = Owner::this_run}, 0).write(r);
  EXPECT_EQ(lines().at(0)["\"frames\""], 48);
  EXPECT_EQ(lines().at(0)["\"frames\"_per_second"], 96);
  EXPECT_EQ(lines().at(0)["overflow"], r.result.overflow);
}

TEST_F(MetricsTest, AResumedRunRepeatsTheStepsAfterItsCheckpoint) {
  write(1, 5);
  std::string before = read_bytes(path);
  { Metrics m = open(3); }
  EXPECT_EQ(steps(), (Steps{1, 2, 3}));
  EXPECT_EQ(before.find(read_bytes(path)), 0u) << "lines before stay as they are";
  write(4, 6);
  EXPECT_EQ(steps(), (Steps{1, 2, 3, 4, 5, 6}));
  { Metrics m = open(6); }
  EXPECT_EQ(steps(), (Steps{1, 2, 3, 4, 5, 6}));
}

// A run that died in the middle of a line, and one that starts again in its own directory.
TEST_F(MetricsTest, HalfALineGoesAndAFreshStartEmptiesItsOwnFile) {
  write(1, 3);
  std::string whole = read_bytes(path);
  write_bytes(path, whole.substr(0, whole.size() - 9));
  { Metrics m = open(7); }
  EXPECT_EQ(steps(), (Steps{1, 2}));
  { Metrics m = open(0); }
  EXPECT_EQ(read_bytes(path), "");
  write(1, 1, Owner::unknown);  // an empty file is nobody's
  EXPECT_EQ(steps(), Steps{1});
}

TEST_F(MetricsTest, AnotherRunsFileIsNotTouched) {
  write(1, 5);
  std::string before = read_bytes(path);
  expect_config_error([&] { open(0, Owner::unknown); },
                      {"metrics: " + path + " exists, and this run starts afresh",
                       "move it away, or choose another --metrics"});
  expect_config_error([&] { open(3, Owner::unknown); },
                      {"metrics: " + path + " exists, and the resumed run wrote elsewhere"});
  EXPECT_EQ(read_bytes(path), before);
}

// Both may begin at the same moment, with a file that is empty.
TEST_F(MetricsTest, OneRunAtATimeWrites) {
  {
    Metrics first = open(0, Owner::unknown);
    expect_config_error(
        [&] { open(0, Owner::unknown); },
        {"metrics: " + path + " is in use by another run", "choose another --metrics"});
    first.write(record(1));
  }
  write(2, 2);
  EXPECT_EQ(steps(), (Steps{1, 2}));
  Metrics both[] = {{{.path = "/dev/null", .unit = "samples"}, 0},
                    {{.path = "/dev/null", .unit = "samples"}, 0}};
}

TEST_F(MetricsTest, ALineThatIsNoStepIsNamed) {
  write(1, 2);
  const std::string good = read_bytes(path);
  const char *brace = " does not start with an open brace", *none = ", the record has no step",
             *no_number = ", step of the record is not a number from 0";
  const std::pair<const char*, const char*> lines[] = {{"", brace},
                                                       {"notes", brace},
                                                       {"[3]", brace},
                                                       {"3", brace},
                                                       {"{}", none},
                                                       {R"({"loss":1})", none},
                                                       {R"({"step":"3"})", no_number},
                                                       {R"({"step":2.5})", no_number},
                                                       {R"({"step":null})", no_number},
                                                       {R"({"step":3)", ", not JSON at byte"}};
  for (auto& pair : lines) {
    const char *line = pair.first, *why = pair.second;
    SCOPED_TRACE(line);
    std::string bad = good + line + "\n" + R"({"step":4})" + "\n";
    write_bytes(path, bad);
    expect_data_error([&] { open(9); }, {"metrics: " + path + ":3" + why,
                                         "Move the file away, or choose another --metrics"});
    EXPECT_EQ(read_bytes(path), bad) << "and nothing is lost";
    { Metrics m = open(0); }  // a fresh start of this run reads no line
    EXPECT_EQ(read_bytes(path), "");
  }
}

TEST_F(MetricsTest, AFileThatCannotBeWrittenIsNamed) {
  expect_error([&] { Metrics({.path = dir / "none/m", .unit = "samples"}, 0); },
               {"metrics: cannot write " + (dir / "none/m")}, Exit::cannot_write);
  std::string pipe = dir / "pipe";  // whose opening waits for a reader
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error([&] { Metrics({.path = pipe, .unit = "samples"}, 0); },
               {"metrics: " + pipe + " is a pipe that nobody reads; expected a file"},
               Exit::cannot_write);
  Metrics full({.path = "/dev/full", .unit = "samples"}, 0);
  expect_error([&] { full.write(record(1)); }, {"metrics: cannot write /dev/full"},
               Exit::cannot_write);
}

// Which file a run writes its metrics to.

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
  EXPECT_EQ(train(task, o).code, Exit::ok);
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
  expect_config_error([&] { train(o); }, {"run/metrics.jsonl is a link", "--metrics "});
  EXPECT_EQ(read_bytes(directory / "mine"), "kept");
}

TEST(TrainerMetrics, OfADirectoryThatCannotBeMadeAreNamed) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.out = directory / std::string(300, 'x');
  expect_error([&] { train(o); }, {"files: list " + o.out, "File name too long"}, Exit::io);
}

TEST(TrainerMetrics, AResumedRunSaysThatTheyGoElsewhere) {
  TemporaryDirectory directory;
  auto said = [&](int64_t steps, const std::string& metrics) {
    auto o = tiny_options();
    o.steps = steps, o.out = directory / "run", o.resume = "auto", o.metrics = metrics;
    return train(o).said;
  };
  std::string outside = directory / "outside.jsonl", own = directory / "run/metrics.jsonl";
  for (int steps : {2, 3}) EXPECT_FALSE(says(said(steps, outside), "metrics was"));
  EXPECT_TRUE(says(said(4, ""), fmt::format("metrics was {}, now {}", outside, own)));
  EXPECT_FALSE(says(said(5, ""), "metrics was"));
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
  train(task, o, [&](Trainer& trainer) {
    trainer.step(), trainer.step();
    trainer.on({.step = [&](Trainer&, const StepRecord& r) { records.push_back(r); }});
  });
  ASSERT_EQ(records.size(), 2);
  EXPECT_LT(records[0].seconds, std::chrono::duration<double>(Slow::pause).count());
  EXPECT_FALSE(records[0].val_loss);
  EXPECT_TRUE(records[1].val_loss);
}

}  // namespace triax::parallel::metrics_test
