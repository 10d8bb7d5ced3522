// A whole program around a task of a test's own, in this process.
#include "parallel/program/program.h"

#include <gtest/gtest.h>

#include "tests/support/call_program.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

using test::call;

// Reading data may take minutes, and a task may change what it captured.
TEST(Program, RanksThatAreThreadsShareOneTask) {
  test::TemporaryDirectory directory;
  int made = 0;
  bool fails = false;
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.task = [&] {
    ++made;
    check_input(!fails, Exit::data, "no data");
    return test::task_of();
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
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.task = [] { return test::task_of(); };
  for (const char* which : {"auto", "last-good"})
    EXPECT_EQ(call(options, {"tiny", "train", "--resume", which}), int(Exit::config));
}

TEST(Program, ParityTakesAProgramsOwnWarmUp) {
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.train.steps = 1000, options.train.lr.warmup = 50;
  options.task = [] { return test::task_of(); };
  EXPECT_EQ(call(options, {"tiny", "parity", "--mesh", "2x1x1"}), 0);
}

TEST(Program, AScheduleWithoutAFunctionIsRefused) {
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.train.step.schedules["mine"] = {};
  options.task = [] { return test::task_of(); };
  for (const char* verb : {"train", "parity", "plan", "schedule"}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(call(options, {"tiny", verb, "--schedule", "mine"}), int(Exit::config)) << verb;
    std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("an empty function; expected one that makes lists"), said.npos)
        << verb << ": " << said;
  }
}

// 10 ranks: tp 5 and 10 do not divide the features, pp 5 and 10 are more than the layers, and tp 2
// does not divide the rows for sequence parallelism.
TEST(Program, PlanCountsTheReasonsThatItLeavesOut) {
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.task = [] { return test::task_of(); };
  auto said = [&](const std::string& ranks) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(call(options, {"tiny", "plan", "--ranks", ranks, "--global-batch", ranks,
                             "--micro-batch", "1"}),
              0);
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_NE(said("10").find("left out: for 2 more reasons\n"), std::string::npos) << said("10");
  EXPECT_NE(said("60").find(" more reasons\n"), std::string::npos) << said("60");
}

// `train` knows no key of `plan` alone: the printed command has flags in place of such a file.
TEST(Program, PlanPrintsACommandThatTrainTakes) {
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.task = [] { return test::task_of(); };
  test::TemporaryDirectory folder;
  std::string file = folder / "c.toml";
  auto said = [&](const std::string& keys) {
    test::write_bytes(file, keys + "offload = \"optimizer\"\n");
    testing::internal::CaptureStdout();
    EXPECT_EQ(call(options, {"tiny", "plan", "--config", file, "--dp", "2"}), 0);
    return testing::internal::GetCapturedStdout();
  };
  std::string whole = said(""), plans = said("top = 2\n");
  EXPECT_NE(whole.find("--config " + file), whole.npos) << whole;
  EXPECT_EQ(whole.find("--offload optimizer"), whole.npos) << whole;
  EXPECT_EQ(plans.find("--config"), plans.npos) << plans;
  EXPECT_NE(plans.find("--offload optimizer"), plans.npos) << plans;
}

}  // namespace
}  // namespace triax::parallel
