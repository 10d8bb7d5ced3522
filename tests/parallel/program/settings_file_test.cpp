// What a run's settings.txt says beyond its settings.
#include <gtest/gtest.h>

#include "tests/support/call_program.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

TEST(SettingsFile, KnowsTheWorkOfAModel) {
  test::TemporaryDirectory dir;
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.task = [] { return test::task_of(); };
  // Two blocks of 16 x 32 and 32 x 16, a head of 4 x 16: 6 for each weight and sample.
  std::string flop = fmt::format("model FLOP per step = {}\n", 32 * (2 * 1024 + 64) * 6);
  for (std::string ranks : {"1", "4"}) {
    std::string axis = ranks == "1" ? "1" : "2";
    ASSERT_EQ(test::call(options, {"tiny", "train", "--steps", "1", "--warmup", "0", "--comm",
                                   "threads", "--ranks", ranks, "--dp", axis, "--tp", axis,
                                   "--global-batch", "32", "--out", dir / ranks}),
              0);
    EXPECT_TRUE(test::says(test::read_bytes(dir / ranks + "/settings.txt"), flop)) << ranks;
  }
}

}  // namespace
}  // namespace triax::parallel
