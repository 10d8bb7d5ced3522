#include "examples/minigpt/config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/files.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace triax::minigpt {
namespace {

using test::error_of;
using test::expect_error;
using Words = std::vector<std::string>;

TrainConfig train(const Words& words) {
  TrainConfig c;
  EXPECT_TRUE(parse(train_verb(c), words));
  return c;
}

class Config : public testing::Test {
 protected:
  // Writes a configuration file; where it is.
  std::string file(const std::string& text) {
    test::write_bytes(dir_ / "run.toml", text);
    return dir_ / "run.toml";
  }

  // What stands in the file, as an error about it says: without the directory.
  std::string refused_file(const std::string& text) {
    std::string path = file(text);
    std::string message = error_of([&] { train({"--config", path}); }, Exit::config);
    size_t at = message.find("run.toml");
    return at == message.npos ? message : message.substr(at);
  }

 private:
  test::TemporaryDirectory dir_;
};

TEST_F(Config, TakesFlagThenFileThenDefault) {
  std::string path = file("layers = 2\nlr = 0.5\nheads = 1\n");
  TrainConfig c = train({"--layers", "3", "--config", path, "--heads=8", "--heads", "2"});
  EXPECT_EQ(c.model.layers, 3);
  EXPECT_EQ(c.model.heads, 2);
  EXPECT_EQ(c.lr, 0.5);
  EXPECT_EQ(c.model.width, TrainConfig{}.model.width);
  EXPECT_EQ(c.config, path);
}

TEST_F(Config, TheLastOfEqualFlagsWins) {
  TrainConfig c = train({"--lr", "0.25", "--layers=7", "--out", "a", "--lr=0.5", "--out", "b",
                         "--layers", "5", "--layers=3"});
  EXPECT_EQ(c.lr, 0.5);
  EXPECT_EQ(c.model.layers, 3);
  EXPECT_EQ(c.out, "b");
  // What was overruled is not even looked at.
  EXPECT_EQ(train({"--layers=x", "--layers", "2"}).model.layers, 2);
}

TEST_F(Config, TakesTextsAsTheyAre) {
  for (const char* text :
       {"", " ", "a b", "[1,2]", "{}", "\"q\"", "-1", "-x", "--y", "a=b", "é\n"}) {
    SampleConfig c;
    EXPECT_TRUE(parse(sample_verb(c), Words{std::string("--prompt=") + text})) << text;
    EXPECT_EQ(c.prompt, text);
  }
  SampleConfig c;
  EXPECT_TRUE(parse(sample_verb(c), Words{"--prompt", "", "--tokens", "5"}));
  EXPECT_EQ(c.prompt, "");
  EXPECT_EQ(c.tokens, 5);
}

// Gives every key a value that is neither its default nor another key's.
void change(Flags flags) {
  int64_t n = 100;
  for (Flag& f : flags) {
    if (auto whole = std::get_if<int64_t*>(&f.field))
      **whole = f.range.max < double(n) ? int64_t(f.range.max) : n++;
    else if (auto real = std::get_if<double*>(&f.field))
      **real = 0.1 + 1.0 / static_cast<double>(++n);
    else if (auto on = std::get_if<bool*>(&f.field)) **on = true;
    else if (!f.choices.empty()) **std::get_if<std::string*>(&f.field) = f.choices.back();
    else **std::get_if<std::string*>(&f.field) = "a \"b\"\\ é\n\t\x01#'=" + std::to_string(n++);
  }
}

TEST_F(Config, EveryKeyReadsBackExactly) {
  TrainConfig config;
  change(train_verb(config).flags);
  std::string toml = to_toml(config);
  TrainConfig again = train({"--config", file(toml)});
  again.config = config.config;
  Flags a = train_verb(config).flags, b = train_verb(again).flags;
  TrainConfig defaults;
  Flags d = train_verb(defaults).flags;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(literal(a[i]), literal(b[i])) << a[i].name;
    EXPECT_NE(literal(a[i]), literal(d[i])) << a[i].name;
  }
  EXPECT_EQ(to_toml(again), toml);
}

TEST_F(Config, NumbersReadBackExactly) {
  for (double x : {0.0, 1.0, 0.1, 1e-300, 5e-324, 1e22, 1.7976931348623157e308, 1.0 / 3}) {
    TrainConfig c;
    c.lr = x;
    resolve(c, 1, "");
    EXPECT_EQ(train({"--config", file(to_toml(c))}).lr, x);
  }
  EXPECT_EQ(train({"--config", file("lr = 1_0.5e-1 # comment\nseed = 9223372036854775807")}).lr,
            1.05);
}

TEST_F(Config, EveryFlagIsReadAndDocumented) {
  TrainConfig config, empty;
  Verb verb = train_verb(config);
  std::string text = help(verb), page = flags_page();
  for (const Flag& f : verb.flags) {
    std::string shown = is_switch(f) ? f.name : f.name + " " + f.value;
    EXPECT_NE(text.find("--" + shown), std::string::npos) << f.name;
    EXPECT_NE(text.find(f.group + ":"), std::string::npos) << f.group;
    EXPECT_NE(page.find("| `--" + f.name + (is_switch(f) ? "`" : " ")), std::string::npos)
        << f.name;
  }
  EXPECT_NE(text.find("transformer blocks (default: 4)"), std::string::npos) << text;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    EXPECT_LE(end - at, 100u) << text.substr(at, end - at);
  }
  EXPECT_FALSE(parse(verb, Words{"--layers", "3", "--help"}));
  EXPECT_EQ(config.model.layers, empty.model.layers);
}

TEST_F(Config, SwitchesNeedNoValue) {
  EXPECT_FALSE(train({}).ledger);
  EXPECT_TRUE(train({"--ledger", "--seed", "3"}).ledger);
  EXPECT_TRUE(train({"--ledger=true"}).ledger);
  EXPECT_FALSE(train({"--ledger", "--ledger=false"}).ledger);
  EXPECT_TRUE(train({"--config", file("sequence-parallel = true")}).mesh.sequence_parallel);
  EXPECT_EQ(error_of([&] { train({"--ledger=7"}); }, Exit::usage),
            "--ledger: `7`; expected true or false");
}

TEST_F(Config, DocumentationIsUpToDate) {
  EXPECT_EQ(disk().read(TRIAX_SOURCE_DIR "/docs/cli.md", 1 << 20), flags_page())
      << "run scripts/cli_docs.sh";
}

TEST_F(Config, NamesTheNearestFlag) {
  auto unknown = [](const Words& words) { return error_of([&] { train(words); }, Exit::usage); };
  EXPECT_EQ(unknown({"--layer", "3"}),
            "minigpt train: unknown flag --layer; the nearest is --layers");
  EXPECT_EQ(unknown({"--micro_batch=3"}),
            "minigpt train: unknown flag --micro_batch; the nearest is --micro-batch");
  EXPECT_EQ(unknown({"-steps", "3"}), "minigpt train: unknown flag -steps; the nearest is --steps");
  EXPECT_EQ(unknown({"--pq", "2"}), "minigpt train: unknown flag --pq; the nearest is --pp");
  EXPECT_EQ(unknown({"7"}), "minigpt train: `7` is no flag; flags are written --name VALUE");
  EXPECT_EQ(unknown({"--seed", "1", "--steps"}),
            "minigpt train: --steps has no value; flags are written --name VALUE, or --name=VALUE "
            "where the value begins with a dash");
}

TEST_F(Config, NamesTheValidValues) {
  auto bad = [](const std::string& word) { return error_of([&] { train({word}); }, Exit::usage); };
  EXPECT_EQ(bad("--layers=x"), "--layers: `x`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(bad("--layers=0"), "--layers: `0`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(bad("--layers=2.5"), "--layers: `2.5`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(bad("--layers="), "--layers: ``; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(bad("--steps=99999999999999999999"),
            "--steps: `99999999999999999999`; expected a whole number, 1 or more");
  EXPECT_EQ(bad("--seed=-1"), "--seed: `-1`; expected a whole number, 0 or more");
  EXPECT_EQ(bad("--dropout=1"), "--dropout: `1`; expected a number in [0, 1)");
  EXPECT_EQ(bad("--lr=nan"), "--lr: `nan`; expected a number, 0 or more");
  EXPECT_EQ(bad("--lr=inf"), "--lr: `inf`; expected a number, 0 or more");
  EXPECT_EQ(bad("--lr=1e-3x"), "--lr: `1e-3x`; expected a number, 0 or more");
  EXPECT_EQ(bad("--comm=rdma"), "--comm: `rdma`; expected one of: auto, nccl, mpi, threads");
  EXPECT_EQ(bad("--out=a\xFF"), "--out: `a\xFF`; expected a text in UTF-8");
}

TEST_F(Config, RefusesBadFiles) {
  EXPECT_EQ(refused_file("a = 1"), "run.toml:1: unknown key `a`; the nearest is `lr`");
  EXPECT_EQ(refused_file("\n# x\nlayer = 1"),
            "run.toml:3: unknown key `layer`; the nearest is `layers`");
  EXPECT_EQ(refused_file("config = \"x\"").substr(0, 31), "run.toml:1: unknown key `config");
  EXPECT_EQ(refused_file("layers = 0"),
            "run.toml:1: layers: `0`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(refused_file("layers = 1.0"),
            "run.toml:1: layers: `1.0`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(refused_file("layers = \"1\""),
            "run.toml:1: layers is a text in quotes; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(refused_file("out = 1"), "run.toml:1: out is a number; expected a text in UTF-8");
  EXPECT_EQ(refused_file("ledger = 1"), "run.toml:1: ledger is a number; expected true or false");
  EXPECT_EQ(refused_file("lr = true").substr(0, 27), "run.toml:1: lr is true or f");
  EXPECT_EQ(refused_file("lr = 1\nlr = 2"), "run.toml:2: `lr` was given in line 1 already");
  const std::string malformed[] = {"[train]",
                                   "lr",
                                   "lr 1",
                                   "= 1",
                                   "lr = ",
                                   "lr = 01",
                                   "lr = 1.",
                                   "lr = .5",
                                   "lr = 1__0",
                                   "lr = nan",
                                   "lr = 1 2",
                                   "lr = truer",
                                   "lr = [1]",
                                   "out = \"a",
                                   "out = \"\\q\"",
                                   "out = 'a",
                                   "out = \"\\",
                                   "out = \"\\ud800\"",
                                   "lr = 1e",
                                   "a.b = 1",
                                   "out = \"\x01\"",
                                   "out = \"\xFF\"",
                                   "out = \"\\U00110000\"",
                                   "\"lr\" = 1",
                                   "lr = 1_",
                                   "lr = - 1",
                                   "out = \"\"\"a\"\"\""};
  for (const std::string& text : malformed) {
    EXPECT_EQ(refused_file(text).substr(0, 11), "run.toml:1:") << text;
  }
  expect_error([] { train({"--config", "/no/such.toml"}); }, {"/no/such.toml"}, Exit::not_found);
  expect_error([] { train({"--config", "/"}); }, {"/", "not a plain file"}, Exit::data);
}

}  // namespace
}  // namespace triax::minigpt
