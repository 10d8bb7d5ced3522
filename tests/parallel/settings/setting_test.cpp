#include "triax/parallel/settings/setting.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/parallel/settings/options.h"
#include "tests/support/expect_error.h"
#include "triax/core/check.h"
#include "triax/parallel/train/options/options.h"

namespace triax::parallel::setting_test {

using namespace test;

TEST(Setting, NamesTheValidValues) {
  auto bad = [](const std::string& word) { return error_of([&] { read({word}); }, Exit::usage); };
  EXPECT_EQ(bad("--layers=x"), "--layers: `x`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(bad("--layers=0"), "--layers: `0`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(bad("--layers=2.5"), "--layers: `2.5`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(bad("--layers="), "--layers: ``; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(bad("--workers=3000000000"),
            "--workers: `3000000000`; expected a whole number in [0, 2147483647]");
  EXPECT_EQ(bad("--seed=99999999999999999999"),
            "--seed: `99999999999999999999`; expected a whole number, 0 or more");
  EXPECT_EQ(bad("--seed=-1"), "--seed: `-1`; expected a whole number, 0 or more");
  EXPECT_EQ(bad("--dropout=1"), "--dropout: `1`; expected a number in [0, 1)");
  EXPECT_EQ(bad("--lr=nan"), "--lr: `nan`; expected a number, 0 or more");
  EXPECT_EQ(bad("--lr=inf"), "--lr: `inf`; expected a number, 0 or more");
  EXPECT_EQ(bad("--lr=1e-3x"), "--lr: `1e-3x`; expected a number, 0 or more");
  EXPECT_EQ(bad("--comm=rdma"), "--comm: `rdma`; expected one of: auto, mpi, threads");
  EXPECT_EQ(bad("--precision=fp64"), "--precision: `fp64`; expected one of: fp32, bf16");
  EXPECT_EQ(bad("--text=a\xFF"), "--text: `a\xFF`; expected UTF-8 text");
  EXPECT_EQ(bad("--graph=7"), "--graph: `7`; expected true or false");
}

TEST(Setting, JoinedNamesAreFlagsAndUnique) {
  auto joins = [](const char* name) {
    double x = 0;
    Settings own = SettingGroup("Own").add(name, "X", "of the program", &x);
    joined({own, SettingGroup("Built in").add("lr", "X", "learning rate", &x)});
  };
  joins("lr2");
  for (const char* taken : {"lr", "help"})
    EXPECT_EQ(error_of([&] { joins(taken); }, Exit::config),
              fmt::format("flag --{}: every program has it, or it was added twice; choose another "
                          "name",
                          taken));
  for (const char* name : {"", "a b", "a=b", "Samples", "\xC3\xA9", "a_b"})
    EXPECT_TRUE(says(error_of([&] { joins(name); }, Exit::config), "expected a name of a-z, 0-9"))
        << name;
}

TEST(Setting, ReadsEveryType) {
  Options o = read({"--layers=7", "--workers=3", "--seed=9223372036854775807", "--lr=1e-4",
                    "--text=é", "--precision=bf16", "--graph"});
  EXPECT_EQ(o.layers, 7);
  EXPECT_EQ(o.workers, 3);
  EXPECT_EQ(o.seed, uint64_t{9223372036854775807});
  EXPECT_EQ(o.lr, 1e-4);
  EXPECT_EQ(o.text, "é");
  EXPECT_EQ(o.precision, Precision::bf16);
  EXPECT_TRUE(o.graph);
}

TEST(Setting, ValuesSetInCodeAreChecked) {
  Options o;
  check_values(settings_of(o));
  o.layers = 0;
  o.seed = uint64_t{1} << 63;  // TOML has no such integer
  o.precision = Precision::fp64;
  EXPECT_EQ(error_of([&] { check_values(settings_of(o)); }, Exit::config),
            "layers: `0`; expected a whole number in [1, 2147483647]\n"
            "  precision: `an unnamed value`; expected one of: fp32, bf16\n"
            "  seed: `9223372036854775808`; expected a whole number, 0 or more");
}

TEST(Setting, SaysDefaultsInWords) {
  Options o;
  std::map<std::string, std::string> defaults;
  for (const Setting& s : settings_of(o)) defaults[s.name] = default_of(s);
  EXPECT_EQ(defaults["dp"], "ranks / (pp x tp)");
  EXPECT_EQ(defaults["precision"], "fp32");
  EXPECT_EQ(defaults["lr"], "0.001");
  int64_t batch = 16;  // derived, were it not given
  Settings given = SettingGroup("Batch").add("global-batch", "N", "", &batch,
                                             {.shown = "micro-batch x dp", .derived = true});
  EXPECT_EQ(default_of(given[0]), "16");
}

TEST(Literals, ReadBackWhatTheyWereMadeOf) {
  std::string text;
  for (char c = 1; c > 0 && c < 127; ++c) text.push_back(c);
  for (const std::string& s : {text, std::string("\\"), std::string("\""), std::string("\\n"),
                               std::string("a\\"), std::string(), std::string("é\x7f")})
    EXPECT_EQ(without_quotes(with_quotes(s)), s);
  EXPECT_EQ(without_quotes("true"), "true");
  for (const char* cut : {"\"", "\"\\\"", "\"\\u12\"", "\"\\uzzzz\"", "\"\\u-00f\""})
    EXPECT_NO_THROW((void)without_quotes(cut)) << cut;
}

TEST(PlainText, IsUtf8WithoutNul) {
  for (const char* text : {"", "a\n\t", "é", "€", "😀", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(is_plain_text(text)) << text;
  for (const char* text :
       {"\x80", "\xC0\xAF", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x9F\xBF", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x8F\xBF\xBF", "\xF0\x9F\x98", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"})
    EXPECT_FALSE(is_plain_text(text)) << text;
  EXPECT_FALSE(is_plain_text(std::string_view("a\0b", 3)));
}

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
  const std::vector<Elsewhere> unnamed{{"tp", ""}};
  for (const char* nothing : {"--", ""}) EXPECT_EQ(hint(nothing, unnamed, "--{}"), "");
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
      if (word != "batch" && word != "batch-size") {
        EXPECT_TRUE(owner.emplace(word, name).second)
            << word << ": " << owner[word] << ", " << name;
      }
  }
  EXPECT_EQ(owner.at("wd"), "weight-decay");
}

}  // namespace triax::parallel::setting_test
