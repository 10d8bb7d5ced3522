// A run directory belongs to its run: files of others stay as they are, and what is missing of its
// own is said.
#include "triax/parallel/train/runs/run_directory.h"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/io/files.h"
#include "triax/parallel/train/trainer.h"

namespace triax::parallel::run_directory_test {

using namespace test;
namespace fs = std::filesystem;

/// Returns what a run with an attachment prints.
std::string trained(TrainOptions o, const std::string& out) {
  o.out = out;
  Task task = task_of();
  task.attachments["notes"] = "{}";
  return train(task, o).said;
}

TEST(RunDirectory, OverwritesNoFileOfOthers) {
  for (const char* name : {"config.toml", "settings.txt", "notes.json", "metrics.jsonl"}) {
    TemporaryDirectory directory;
    write_bytes(directory / name, "mine");
    expect_config_error([&] { trained(tiny_options(), directory.path()); },
                        {std::string("it holds ") + name + ", and is not that of a run", "--out"});
    EXPECT_EQ(read_bytes(directory / name), "mine");
    EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1) << "not even a lock";
  }
}

TEST(RunDirectory, MayBeOneThatDiedEarlyOrHoldsOtherFiles) {
  TemporaryDirectory directory;
  write_bytes(directory / "lock", "");
  write_bytes(directory / "metrics.jsonl", "");
  write_bytes(directory / "mine.txt", "mine");
  EXPECT_TRUE(says(trained(tiny_options(), directory.path()), "3 steps"));
  fs::remove_all(directory / "step-3");  // it still says where its metrics are
  EXPECT_TRUE(says(trained(tiny_options(), directory.path()), "3 steps"));
  EXPECT_EQ(read_bytes(directory / "mine.txt"), "mine");
}

TEST(RunDirectory, SaysWhichDamagedCheckpointsAreLeftOut) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.save_every = 1, o.keep = 3;
  trained(o, directory.path());
  for (int step : {2, 3}) write_bytes(directory / fmt::format("step-{}/manifest.json", step), "{");
  o.resume = "last-good";
  std::string said = trained(o, directory.path());
  EXPECT_TRUE(says(said, "resumed after step 1"));
  EXPECT_TRUE(says(said, "left out, since damaged: step-2 left out, since damaged: step-3"));
}

TEST(RunDirectory, SaysWhatItsMetricsLack) {
  TemporaryDirectory directory;
  auto o = tiny_options();
  o.steps = 4, o.resume = "auto";
  trained(o, directory.path());
  std::string file = directory / "metrics.jsonl", lines = read_bytes(file);
  size_t second = lines.find('\n') + 1, third = lines.find('\n', second) + 1;
  write_bytes(file, lines.substr(0, second) + lines.substr(third));
  o.steps = 5;
  EXPECT_TRUE(says(trained(o, directory.path()), "lacks the line of 1 step before this start"));
  write_bytes(file, lines.substr(0, second + 9));  // and a torn one
  o.steps = 6;
  EXPECT_TRUE(says(trained(o, directory.path()), "lacks the lines of 4 steps before this start"));
  fs::remove(file);
  o.steps = 7;
  EXPECT_TRUE(says(trained(o, directory.path()), "lacks the lines of 6 steps before this start"));
  o.resume = directory / "step-7", o.steps = 8;
  EXPECT_FALSE(says(trained(o, directory / "another"), "lacks the lines")) << "it never had them";
}

TEST(RunDirectory, SettingsThatWereCutAreNotTrusted) {
  TemporaryDirectory directory;
  trained(tiny_options(), directory.path());
  std::string file = directory / "settings.txt", whole = whole_settings(file);
  EXPECT_TRUE(says(whole, "first step = 1\n"));
  for (size_t left : {whole.size() - 1, whole.size() / 2, whole.find('\n') + 1, size_t(0)}) {
    write_bytes(file, whole.substr(0, left));
    expect_data_error([&] { whole_settings(file); }, {"settings.txt is cut", "Remove it"});
  }
  write_bytes(file, whole.substr(whole.find('\n') + 1));  // a line less
  expect_data_error([&] { whole_settings(file); }, {"settings.txt is cut"});
}

// A trainer that resumes a checkpoint without a run directory of its own, as `replay` does.

TEST(ReadOnly, ACheckpointWithoutARunDirectoryIsOnlyRead) {
  TemporaryDirectory directory;
  auto o = tiny_options({.dp = 2});
  o.out = directory / "run", o.save_every = 2;
  train(o);
  auto names = disk().list(o.out);
  o.resume = o.out + "/step-2", o.out = "";
  run_worlds(2, [&](World& world) {
    Trainer trainer(task_of(), o, world);
    EXPECT_EQ(trainer.done(), 2);
    EXPECT_EQ(trainer.consumed(), 32);
    trainer.step();
    expect_error([&] { trainer.save(); }, {"save without a run directory"}, Exit::internal);
  });
  EXPECT_EQ(disk().list(directory / "run"), names);
  for (const char* how : {"auto", "last-good"}) {
    o.resume = how;
    expect_config_error([&] { train(o); }, {"without a run directory"});
  }
}

// A run that is stopped says how to go on: words that a shell takes back, whatever the path.

/// A word a line, as a shell reads them.
std::string words_of(const std::string& line) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> shell(
      ::popen(("printf '%s\\n' " + line).c_str(), "r"), &::pclose);
  std::string words;
  std::array<char, 256> part;
  while (size_t n = std::fread(part.data(), 1, part.size(), shell.get()))
    words.append(part.data(), n);
  return words;
}

TEST(ResumeHint, IsReadBackByAShell) {
  test::TemporaryDirectory directory;
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.task = [] { return test::task_of(); };
  options.prepare = [](Trainer& t) { t.on({.step = [](auto&, auto&) { std::raise(SIGUSR1); }}); };
  for (const char* name :
       {"plain", "with spaces, 'quotes' and $HOME; longer than a terminal is wide"}) {
    std::string out = directory / name;
    test::Said said = test::said_by(options, {"tiny", "train", "--warmup", "0", "--out", out});
    EXPECT_EQ(said.code, int(Exit::stopped)) << said.err;
    const std::string before = "  Go on with ";
    size_t at = said.out.find(before);
    ASSERT_NE(at, said.out.npos) << said.out;
    std::string hint = said.out.substr(at + before.size());
    ASSERT_EQ(hint.find('\n'), hint.size() - 1) << "one line: " << hint;
    EXPECT_EQ(
        words_of(hint),
        fmt::format("tiny\ntrain\n--config\n{0}/config.toml\n--out\n{0}\n--resume\nauto\n", out));
  }
}

}  // namespace triax::parallel::run_directory_test
