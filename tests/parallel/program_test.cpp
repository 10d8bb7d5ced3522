// A whole program around a task of a test's own, in this process.
#include "triax/parallel/program/program.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::parallel::program_test {

using namespace test;

ProgramOptions tiny() {
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = tiny_options()};
  options.task = [] { return task_of(); };
  return options;
}

/// Returns what the program prints; expects that it ends well.
std::string printed(const std::vector<std::string>& words) {
  Said said = said_by(tiny(), words);
  EXPECT_EQ(said.code, 0) << said.err;
  return said.out;
}

// Reading data may take minutes, and a task may change what it captured.
TEST(Program, RanksThatAreThreadsShareOneTask) {
  TemporaryDirectory directory;
  int made = 0;
  bool fails = false;
  ProgramOptions options = tiny();
  options.task = [&] {
    ++made;
    check_input(!fails, Exit::data, "no data");
    return task_of();
  };
  std::vector<std::string> words = {
      "tiny",  "train",           "--comm",  "threads", "--ranks",       "4", "--dp",     "4",
      "--out", directory / "run", "--steps", "2",       "--micro-batch", "4", "--warmup", "0"};
  EXPECT_EQ(call(options, words), 0);
  EXPECT_EQ(made, 1);
  fails = true;
  EXPECT_EQ(call(options, words), int(Exit::data));
  EXPECT_EQ(made, 2) << "a task that fails is not tried again by every rank";
}

// A directory made now holds nothing to resume: a job that is queued again would begin again.
TEST(Program, ResumesOnlyARunThatIsNamed) {
  for (const char* which : {"auto", "last-good"})
    EXPECT_EQ(call(tiny(), {"tiny", "train", "--resume", which}), int(Exit::config));
}

TEST(Program, ParityTakesAProgramsOwnWarmUp) {
  ProgramOptions options = tiny();
  options.train.steps = 1000, options.train.lr.warmup = 50;
  EXPECT_EQ(call(options, {"tiny", "parity", "--mesh", "2x1x1"}), 0);
}

TEST(Program, AScheduleWithoutAFunctionIsRefused) {
  ProgramOptions options = tiny();
  options.train.step.schedules["mine"] = {};
  for (const char* verb : {"train", "parity", "plan", "schedule"}) {
    Said said = said_by(options, {"tiny", verb, "--schedule", "mine"});
    EXPECT_EQ(said.code, int(Exit::config)) << verb;
    EXPECT_TRUE(says(said.err, "an empty function; expected one that makes lists")) << verb;
  }
}

// 10 ranks: tp 5 and 10 do not divide the features, pp 5 and 10 are more than the layers, and tp 2
// does not divide the rows for sequence parallelism.
TEST(Program, PlanCountsTheReasonsThatItLeavesOut) {
  std::string all = printed({"tiny", "plan", "--ranks", "10", "--global-batch", "10",
                             "--micro-batch", "1"});  // of which a terminal shows three
  int reasons = 0;
  for (size_t at = 0; (at = all.find("\nleft out: ", at)) != all.npos; ++at) ++reasons;
  EXPECT_EQ(reasons, 5) << all;
  EXPECT_FALSE(says(all, "more reason"));
}

TEST(Program, PlanSaysWhatIsFixedAndWhatTheBatchForbids) {
  TemporaryDirectory folder;
  std::string file = folder / "c.toml";
  write_bytes(file, "micro-batch = 2\nrecompute = \"block\"\nglobal-batch = 12\nseed = 3\n");
  auto said = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"tiny", "plan", "--ranks", "4"};
    words.insert(words.end(), more.begin(), more.end());
    return printed(words);
  };
  std::string text = said({"--config", file});
  EXPECT_TRUE(says(text, "\nfixed by --config: micro-batch 2, global-batch 12, recompute block\n"));
  EXPECT_TRUE(says(text, "12 samples a step are no multiple of 4 ranks x micro-batch 2"));
  EXPECT_TRUE(says(text, "--global-batch 16"));
  EXPECT_TRUE(says(text, "model: 2 blocks and 2 other layers, "));
  for (const char* column : {"MFU", "bubble", "memory", "free", "why"})
    EXPECT_TRUE(says(text, std::string("  ") + column));
  text = said({"--config", file, "--global-batch", "16", "--recompute", "off"});
  EXPECT_TRUE(says(text, "\nfixed by --config: micro-batch 2\n"));
  EXPECT_FALSE(says(text, "no multiple"));
  EXPECT_FALSE(says(said({}), "fixed by"));
}

/// Its weights are others where tp splits them.
struct OtherOnAMesh : nn::Sequence {
  explicit OtherOnAMesh(const TensorParallel& tp) {
    add<Rows>("rows", tp);
    add<Block>("block0", tp);
    add<ClassHead>("head", 4, 16, tp, VocabularyOptions{.std = tp.size() > 1 ? 0.4 : 0.3});
  }
};

TEST(Program, AutoTrainsOnlyWhatTrainsAsOneRankDoes) {
  TemporaryDirectory directory;
  auto words = [&](const std::string& out) {
    return std::vector<std::string>{"tiny",   "train",   "--auto",       "--hardware", "cpu",
                                    "--comm", "threads", "--ranks",      "2",          "--tp",
                                    "2",      "--out",   directory / out};
  };
  std::string said = printed(words("fine"));
  EXPECT_TRUE(says(said, "EQUAL: loss, norm, "));
  EXPECT_TRUE(says(said, "finished after step 3"));
  ProgramOptions options = tiny();
  options.task = [] { return task_of<OtherOnAMesh>(); };
  Said other = said_by(options, words("other"));
  EXPECT_EQ(other.code, int(Exit::differs));
  EXPECT_TRUE(says(other.out, "DIFFERENT before the first step: weight of head"));
  EXPECT_TRUE(says(other.err, "auto: the best plan does not train as one rank does"));
  EXPECT_TRUE(says(other.err, "leave --auto out"));
  EXPECT_FALSE(std::filesystem::exists(directory / "other"));
}

// What one plans for is never left out.
TEST(Program, PlanOnANarrowTerminalKeepsMemoryAndMfu) {
  for (const char* columns : {"40", "60", "80", "300"}) {
    ::setenv("COLUMNS", columns, 1);
    std::string text = printed({"tiny", "plan", "--ranks", "8"});
    ::unsetenv("COLUMNS");
    size_t table = text.find("dp x pp x tp");
    std::string heading = text.substr(table, text.find('\n', table) - table);
    for (const char* column : {"a step", "MFU", "memory"})
      EXPECT_TRUE(says(heading, column)) << columns << ": " << heading;
    bool whole = heading.find("bubble") != heading.npos && heading.find("free") != heading.npos;
    EXPECT_EQ(text.find("more columns on a wider terminal: ") == text.npos, whole) << text;
    EXPECT_EQ(std::string(columns) == "300", whole) << text;
  }
}

// Files and pipes get whole lines, for programs that read them.
TEST(Program, NothingIsFoldedWhereThereIsNoTerminal) {
  ::unsetenv("COLUMNS");
  auto count = [](const std::string& text, const std::string& what) {
    int found = 0;
    for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += what.size()) ++found;
    return found;
  };
  std::string text = printed({"tiny", "plan", "--ranks", "8", "--schedule", "zb-h1"});
  std::string command = text.substr(text.find("\nmpirun -np 8 "));
  EXPECT_TRUE(says(command, "--precision fp32\n"));
  EXPECT_EQ(count(command, "\\"), 0) << command;
  text = printed({"tiny", "schedule", "--pp", "4", "--micros", "100"});
  EXPECT_EQ(count(text, "\nstage 0 "), 1) << text;
  EXPECT_TRUE(says(text, "F99"));
}

TEST(Program, RunsThatBeginInOneSecondHaveDirectoriesOfTheirOwn) {
  TemporaryDirectory folder;
  auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  std::set<std::string> paths;
  for (int i = 0; i < 20; ++i) paths.insert(make_run_directory("tiny"));
  EXPECT_EQ(paths.size(), 20);
  std::string next = *paths.begin() + "-21";
  write_bytes(next, "a file");
  for (int i = 0; i < 3; ++i) paths.insert(make_run_directory("tiny"));
  EXPECT_EQ(paths.size(), 23);
  EXPECT_FALSE(paths.contains(next));

  auto runs = [] { return std::distance(std::filesystem::directory_iterator("runs"), {}); };
  auto count = runs();
  EXPECT_EQ(call(tiny(), {"tiny", "train", "--steps", "1"}), 0);
  EXPECT_EQ(runs(), ++count);
  EXPECT_EQ(call(tiny(), {"tiny", "train", "--steps", "1", "--resume", "/no/such"}),
            int(Exit::not_found));
  EXPECT_EQ(runs(), count) << "nothing is left of a run that did not begin";
  std::filesystem::current_path(before);
}

// `train` knows no key of `plan` alone: the printed command has flags in place of such a file.
TEST(Program, PlanPrintsACommandThatTrainTakes) {
  TemporaryDirectory folder;
  std::string file = folder / "c.toml";
  auto said = [&](const std::string& keys) {
    write_bytes(file, keys + "offload = \"optimizer\"\n");
    return printed({"tiny", "plan", "--config", file, "--dp", "2"});
  };
  std::string whole = said(""), plans = said("top = 2\n");
  EXPECT_TRUE(says(whole, "--config " + file));
  EXPECT_FALSE(says(whole, "--offload optimizer"));
  EXPECT_FALSE(says(plans, "--config"));
  EXPECT_TRUE(says(plans, "--offload optimizer"));
}

}  // namespace triax::parallel::program_test
