#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parallel/settings/setting.h"

namespace triax::parallel {
namespace {

const std::vector<std::string> names{
    "width", "steps", "micro-batch", "global-batch", "lr", "sequence-parallel",
    "pp",    "tp",    "save-every",  "out"};

TEST(Hints, NearestNeedsFewEdits) {
  EXPECT_EQ(nearest("--widht", names), "width");
  EXPECT_EQ(nearest("micro_batch", names), "micro-batch");
  EXPECT_EQ(nearest("--Steps", names), "steps");
  EXPECT_EQ(nearest("pq", names), "pp");
  EXPECT_EQ(nearest("sequence-paralel", names), "sequence-parallel");
  for (const char* far : {"a", "xyz", "--momentum", "bat", "betas", "--", "", "fsdp"})
    EXPECT_EQ(nearest(far, names), "") << far;
}

TEST(Hints, NearestTakesTheBeginningOfAName) {
  EXPECT_EQ(nearest("--micro", names), "micro-batch");
  EXPECT_EQ(nearest("--seq", names), "sequence-parallel");
  EXPECT_EQ(nearest("s", names), "");
}

TEST(Hints, KnowsWhatOtherProgramsSay) {
  EXPECT_EQ(hint("--batch-size", names, "--{}"),
            "; use --micro-batch (per replica) or --global-batch");
  EXPECT_EQ(hint("--hidden_size", names, "--{}"), "; use --width");
  EXPECT_EQ(hint("--bs", names, "--{}"), "; use --micro-batch");
  EXPECT_EQ(hint("--gpus", std::vector<std::string>{"eps", "ranks"}, "--{}"), "; use --ranks");
  EXPECT_EQ(hint("learning-rate", names, "`{}`"), "; use `lr`");
  EXPECT_EQ(hint("--widht", names, "--{}"), "; the nearest is --width");
  // Only of names that there are.
  EXPECT_EQ(hint("--batch-size", std::vector<std::string>{"global-batch"}, "--{}"),
            "; use --global-batch");
  EXPECT_EQ(hint("--num-heads", names, "--{}"), "");
}

}  // namespace
}  // namespace triax::parallel
