#include <gtest/gtest.h>

#include <cmath>

#include "tests/parallel/settings/options.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/io/files.h"

namespace triax::parallel::config_file_test {

using namespace test;

class ConfigFile : public testing::Test {
 protected:
  // Writes a configuration file; where it is.
  std::string file(const std::string& text) {
    write_bytes(dir_ / "run.toml", text);
    return dir_ / "run.toml";
  }

  // The error about a file, without its directory.
  std::string refused(const std::string& text) {
    std::string path = file(text);
    std::string message = error_of([&] { read({"--config", path}); }, Exit::config);
    size_t at = message.find("run.toml");
    return at == message.npos ? message : message.substr(at);
  }

  TemporaryDirectory dir_;
};

TEST_F(ConfigFile, FlagsWinOverTheFileOverDefaults) {
  std::string path = file("layers = 2\nlr = 0.5\nworkers = 1\n");
  Options o = read({"--layers", "3", "--config", path, "--workers=8", "--workers", "7"});
  EXPECT_EQ(o.layers, 3);
  EXPECT_EQ(o.workers, 7);
  EXPECT_EQ(o.lr, 0.5);
  EXPECT_EQ(o.seed, 1u);
  EXPECT_EQ(o.config, path);
}

TEST_F(ConfigFile, EveryKeyReadsBackExactly) {
  Options o{.layers = 5,
            .dp = 3,
            .workers = 7,
            .seed = INT64_MAX,
            .lr = 0.1,
            .dropout = 1.0 / 3,
            .comm = "mpi",
            .text = "a \"b\"\\ é\n\r\t\x01\x7F#'=",
            .precision = Precision::bf16,
            .graph = true};
  std::string toml = to_toml(settings_of(o));
  Options again = read({"--config", file(toml)}), defaults;
  again.config = "";
  Settings a = settings_of(o), b = settings_of(again), d = settings_of(defaults);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(literal(a[i]), literal(b[i])) << a[i].name;
    bool changed = a[i].key && a[i].saved;
    EXPECT_EQ(literal(a[i]) != literal(d[i]), changed) << a[i].name;
  }
  EXPECT_EQ(to_toml(b), toml);
}

TEST_F(ConfigFile, NumbersReadBackExactly) {
  for (double x : {0.0, 1.0, 0.1, 1e-300, 5e-324, 1e22, 1.7976931348623157e308, 1.0 / 3}) {
    Options o{.lr = x};
    EXPECT_EQ(read({"--config", file(to_toml(settings_of(o)))}).lr, x);
  }
  EXPECT_EQ(read({"--config", file("lr = 1_0.5e-1 # comment\n")}).lr, 1.05);
  EXPECT_EQ(read({"--config", file("lr = 2")}).lr, 2);
}

// What a program fills in after its command line must not bind the run that reads the saved file.
TEST_F(ConfigFile, DerivedValuesAreNotPinned) {
  Options first = read({"--layers", "3", "--out", "runs/first"});
  std::string saved = to_toml(settings_of(first));
  Options second = read({"--config", file(saved), "--out", "runs/second"});
  EXPECT_EQ(second.layers, 3);
  EXPECT_EQ(second.out, "runs/second");
  EXPECT_EQ(second.dp, 0);  // still to be derived
  EXPECT_EQ(saved.find("first"), saved.npos) << saved;
  EXPECT_EQ(saved.find("dp"), saved.npos) << saved;

  Options given = read({"--dp", "2"});
  EXPECT_EQ(read({"--config", file(to_toml(settings_of(given)))}).dp, 2);
}

TEST_F(ConfigFile, RefusesBadKeysAndValues) {
  EXPECT_EQ(
      refused("a = 1"),
      "run.toml:1: unknown key `a`; expected one of: layers, dropout, dp, comm, precision, lr, "
      "workers, seed, text, graph, profile, out");
  EXPECT_EQ(refused("\n# x\nlayer = 1"),
            "run.toml:3: unknown key `layer`; the nearest is `layers`");
  EXPECT_EQ(refused("learning_rate = 1"), "run.toml:1: unknown key `learning_rate`; use `lr`");
  EXPECT_EQ(refused("config = \"x\"").substr(0, 32), "run.toml:1: unknown key `config`");
  EXPECT_EQ(refused("layers = 0"),
            "run.toml:1: layers: `0`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(refused("layers = 1.0"),
            "run.toml:1: layers: `1.0`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(refused("layers = \"1\""),
            "run.toml:1: layers is a string; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(refused("text = 1"), "run.toml:1: text is a number; expected UTF-8 text");
  EXPECT_EQ(refused("precision = 16"),
            "run.toml:1: precision is a number; expected one of: fp32, bf16");
  EXPECT_EQ(refused("graph = 1"), "run.toml:1: graph is a number; expected true or false");
  EXPECT_EQ(refused("lr = true"), "run.toml:1: lr is a boolean; expected a number, 0 or more");
  EXPECT_EQ(refused("lr = [1]"), "run.toml:1: lr is an array; expected a number, 0 or more");
  EXPECT_EQ(refused("lr = nan"), "run.toml:1: lr: `nan`; expected a number, 0 or more");
  EXPECT_EQ(refused("text = \"\\u0000\"").substr(0, 16), "run.toml:1: text");
  EXPECT_EQ(refused("seed = 1\n[train]\nlr = 1"),
            "run.toml:2: train is a table; expected lines `key = value` without tables");
  // The first mistake of a file is the one reported.
  EXPECT_EQ(refused("seed = 1\ntext = 1\nlayers = 0").substr(0, 16), "run.toml:2: text");
}

TEST_F(ConfigFile, RefusesWhatIsNoToml) {
  const std::string malformed[] = {"lr",
                                   "lr 1",
                                   "lr : 1",
                                   "= 1",
                                   "lr = ",
                                   "lr = 01",
                                   "lr = 1.",
                                   "lr = .5",
                                   "lr = 1__0",
                                   "lr = 1 2",
                                   "lr = truer",
                                   "text = \"a",
                                   "text = \"\\q\"",
                                   "text = 'a",
                                   "text = \"\\",
                                   "lr = 1e",
                                   "lr = 1_",
                                   "lr = - 1",
                                   "text = \"\x01\"",
                                   "text = \"\xFF\"",
                                   "lr = 0\nlr=1",
                                   "text = \"\\ud800\"",
                                   "text = \"\\U00110000\"",
                                   std::string("lr\0 = 1", 7)};
  for (const std::string& text : malformed) {
    std::string line = text.find('\n') == text.npos ? "2" : "3";
    std::string place = "run.toml:" + line + ": ";
    EXPECT_EQ(refused("seed = 1\n" + text).substr(0, place.size()), place) << text;
  }
  std::string said = refused("seed : 3");
  EXPECT_NE(said.find("; the line is `seed : 3`"), said.npos) << said;
}

// toml++ has undefined behaviour at these bytes, so it must not see them.
TEST_F(ConfigFile, RefusesWhatIsNotAsciiOutsideOfQuotes) {
  const std::string odd = "\xEF\xBB\xB7", e = "\xC3\xA9";
  for (const std::string& text :
       {odd, odd + " = 1", "lr" + odd + " = 1", "[" + odd + "]", "lr = " + odd, "lr = 1" + e,
        "text = \"a\\\"b\"" + e, "text = 'a\\'" + e, "text = \"\"" + e, R"(text = """a\"""""")" + e,
        "text = '''a''''" + e}) {
    std::string said = refused("seed = 1 # " + e + "\n" + text);
    EXPECT_NE(said.find(" outside of quotes; expected ASCII; the line is "), said.npos) << said;
  }
  EXPECT_EQ(
      refused("\nlr" + e + " = 1"),
      "run.toml:2: byte 0xc3 outside of quotes; expected ASCII; the line is `lr" + e + " = 1`");
  for (const std::string& text :
       {"text = \"a\n" + e, "lr = 0.5\"" + odd, "lr = 5=\"" + odd, "lr = 5[\"" + odd,
        std::string("lr = 0.5\x0eupdat\"\xEF\xB9\xBF")})
    EXPECT_NE(refused("\n" + text).find("run.toml:2: "), std::string::npos) << text;
  for (const std::string& text : {"\"" + odd + "\"", "'" + odd + "\\'",
                                  "\"\"\"\n" + odd + "\"\"\"\"\"", "'''" + odd + "''''"}) {
    std::string path = file("\xEF\xBB\xBFtext = " + text + " # " + odd);
    EXPECT_EQ(read({"--config", path}).text.substr(0, 3), odd) << text;
  }
}

TEST_F(ConfigFile, SaysThatAFileIsJson) {
  EXPECT_EQ(refused("\n{\"train_batch_size\": 8}"),
            "run.toml:2: this is JSON; expected TOML: lines `key = value`, whose keys are the "
            "flags that --help lists, without dashes");
  std::string ds;
  SettingGroup reader("Run");
  reader.add("deepspeed", "FILE", "DeepSpeed's JSON", &ds, {.key = false});
  std::string path = file("{}");
  expect_config_error([&] { read_config(reader, path); },
                      {"this is JSON", "\n  DeepSpeed's JSON is read by --deepspeed FILE."});
}

TEST_F(ConfigFile, ServesTheOtherVerbsToo) {
  Options train, plan;
  CommandLine line{"program",
                   "1",
                   {verb_of(train), {"plan", "Plans.", only(settings_of(plan), {"lr", "config"})}}};
  auto reads = [&](const std::string& verb, const std::string& text) {
    parse(line, std::vector<std::string>{verb, "--config", file(text)}, 80);
  };
  reads("plan", "layers = 7\nlr = 0.25\n");
  EXPECT_EQ(plan.lr, 0.25);
  EXPECT_EQ(plan.layers, Options().layers);
  EXPECT_EQ(train.layers, Options().layers) << "its own verb has not read it";
  expect_config_error([&] { reads("plan", "layerss = 7\n"); }, {"unknown key `layerss`"});
}

TEST_F(ConfigFile, MessagesNameTheLinesOfTheirPaths) {
  Options o;
  Verb verb = verb_of(o);
  std::string path = file("out = \"runs/a\"\n"), message = "files: open runs/a: No such file";
  std::vector<std::string> words{"--config", path};
  EXPECT_EQ(paths_named(message, parse("program", verb, words)),
            "\n  This is out = \"runs/a\" in " + path + ".");
  words.insert(words.end(), {"--out", "runs/a"});
  EXPECT_EQ(paths_named(message, parse("program", verb, words)), "\n  This is --out runs/a.");
}

TEST_F(ConfigFile, RefusesWhatIsNoFile) {
  expect_error([] { read({"--config", "/no/such.toml"}); }, {"/no/such.toml"}, Exit::not_found);
  expect_data_error([] { read({"--config", "/"}); }, {"/", "not a plain file"});
  std::string large = file("#" + std::string(1 << 20, 'x'));
  expect_data_error([&] { read({"--config", large}); }, {large, "1048577"});
}

}  // namespace triax::parallel::config_file_test
