#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "parallel/settings/setting.h"
#include "parallel/train/options/options.h"

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
  const std::vector<Elsewhere> known{{"micro-batch", "bs|batch-size"},
                                     {"global-batch", "batch-size"},
                                     {"width", "hidden-size"},
                                     {"lr", "learning-rate"}};
  EXPECT_EQ(hint("--batch-size", known, "--{}"), "; use --micro-batch or --global-batch");
  EXPECT_EQ(hint("--hidden_size", known, "--{}"), "; use --width");
  EXPECT_EQ(hint("--bs", known, "--{}"), "; use --micro-batch");
  EXPECT_EQ(hint("learning-rate", known, "`{}`"), "; use `lr`");
  EXPECT_EQ(hint("--widht", known, "--{}"), "; the nearest is --width");
  EXPECT_EQ(hint("--num-heads", known, "--{}"), "");
}

TEST(Hints, KnowsWhatIsAScriptNow) {
  EXPECT_EQ(hint("overlay", names, "{}"), "; it is `triax-overlay RUN` now");
}

// No two settings of a program claim a name, but sizes of a batch, which may be either.
TEST(Hints, NamesElsewhereBelongToOneSetting) {
  TrainOptions o;
  std::map<std::string, std::string> owner;
  for (auto& [name, others] : names_of(train_settings(o))) {
    std::istringstream words(others);
    for (std::string word; std::getline(words, word, '|');)
      if (word != "batch" && word != "batch-size")
        EXPECT_TRUE(owner.emplace(word, name).second)
            << word << ": " << owner[word] << ", " << name;
  }
  EXPECT_EQ(owner.at("wd"), "weight-decay");
}

}  // namespace
}  // namespace triax::parallel
