// A whole program around a task of a test's own, in this process.
#include "parallel/program/program.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

// Reading data may take minutes, and a task may change what it captured.
TEST(Program, RanksThatAreThreadsShareOneTask) {
  test::TemporaryDirectory directory;
  int made = 0;
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.task = [&] {
    ++made;
    return test::task_of();
  };
  std::string out = directory / "run";
  std::vector<std::string> words = {"tiny",          "train", "--comm",   "threads", "--ranks", "4",
                                    "--dp",          "4",     "--out",    out,       "--steps", "2",
                                    "--micro-batch", "4",     "--warmup", "0"};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  EXPECT_EQ(program(int(argv.size()), argv.data(), options), 0);
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace triax::parallel
