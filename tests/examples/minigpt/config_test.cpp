// The flags of minigpt: all of them read back from a file, and docs/cli.md lists them.
#include "examples/minigpt/config.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/io/files.h"
#include "triax/parallel/program/verbs.h"

namespace triax::minigpt::config_test {

using parallel::Choice;
using parallel::Setting;
using parallel::Settings;
using parallel::Verb;
using namespace test;
using Words = std::vector<std::string>;

/// What `minigpt train` can be told.
struct Train {
  Config config;
  text::SampleOptions sample;
  parallel::ProgramOptions program = program_options(config, sample);
  Verb verb = train_verb(program);

  Train() = default;
  explicit Train(const Words& words) { EXPECT_TRUE(parse("minigpt", verb, words).verb); }
  Train(const Train&) = delete;  // the settings point into it
};

/// Gives every key a value that is neither its default nor another key's.
void change(const Settings& settings) {
  int n = 100;
  for (const Setting& s : settings) {
    auto other = [&]<class T>(const T& field) {
      if constexpr (std::is_same_v<T, Choice>) field.set(field.names.size() - 1);
      else if constexpr (std::is_same_v<T, bool*>) *field = true;
      else if constexpr (std::is_same_v<T, double*>) *field = 0.1 + 1.0 / double(++n);
      else if constexpr (std::is_same_v<T, std::string*>)
        *field =
            s.choices.empty() ? "a \"b\"\\ é\n\t\x01#'=" + std::to_string(n++) : s.choices.back();
      else *field = s.range.max < double(n) ? int(s.range.max) : n++;
    };
    std::visit(other, s.field);
  }
}

TEST(Config, EveryKeyReadsBackExactly) {
  TemporaryDirectory directory;
  Train given, defaults;
  change(given.verb.settings);
  std::string toml = to_toml(given.verb.settings), path = directory / "run.toml";
  write_bytes(path, toml);
  Train again({"--config", path});
  const Settings &a = given.verb.settings, &b = again.verb.settings, &d = defaults.verb.settings;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].name == "config") continue;
    bool saved = a[i].key && a[i].saved;
    EXPECT_EQ(literal(a[i]) == literal(b[i]), saved) << a[i].name;
    EXPECT_NE(literal(a[i]), literal(d[i])) << a[i].name;
  }
  EXPECT_EQ(to_toml(b), toml);
}

/// What `minigpt flags` prints.
std::string flags_page() {
  Config config;
  text::SampleOptions sample;
  std::string words[] = {"minigpt", "flags"};
  char* argv[] = {words[0].data(), words[1].data(), nullptr};
  testing::internal::CaptureStdout();
  EXPECT_EQ(parallel::program(2, argv, program_options(config, sample)), 0);
  return testing::internal::GetCapturedStdout();
}

TEST(Config, DocumentationIsUpToDate) {
  std::string page = flags_page();
  EXPECT_EQ(disk().read(TRIAX_SOURCE_DIR "/docs/cli.md", 1 << 20), page)
      << "run scripts/site/cli_docs.sh";
  Train train;
  text::SampleOptions sample;
  for (auto& verb : {train.verb, sample_verb("minigpt", sample, model_of)})
    for (const Setting& s : verb.settings)
      EXPECT_TRUE(says(page, "| `--" + s.name + (is_switch(s) ? "`" : " "))) << s.name;
}

TEST(Config, NamesTheValidValues) {
  auto bad = [](const std::string& word) { return error_of([&] { Train{{word}}; }, Exit::usage); };
  EXPECT_EQ(bad("--layers=0"), "--layers: `0`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(bad("--steps=99999999999999999999"),
            "--steps: `99999999999999999999`; expected a whole number, 0 or more");
  EXPECT_EQ(bad("--seed=-1"), "--seed: `-1`; expected a whole number, 0 or more");
  EXPECT_EQ(bad("--dropout=1"), "--dropout: `1`; expected a number in [0, 1)");
  EXPECT_EQ(bad("--lr=nan"), "--lr: `nan`; expected a number, 0 or more");
  EXPECT_EQ(bad("--comm=rdma"), "--comm: `rdma`; expected one of: auto, nccl, mpi, threads");
  EXPECT_EQ(bad("--zero=4"), "--zero: `4`; expected one of: 0, 1, 2, 3");
  EXPECT_EQ(bad("--recompute=all"),
            "--recompute: `all`; expected one of: off, selective, block, block-split");
  EXPECT_EQ(bad("--precision=fp8"), "--precision: `fp8`; expected one of: fp32, bf16, fp16");
  EXPECT_EQ(bad("--schedule=2f2b"),
            "--schedule: `2f2b`; expected one of: 1f1b, 1f1b-v, dualpipev, gpipe, interleaved, "
            "v-half, v-min, zb-2p, zb-h1, zb-interleaved, zb-v, or a file that ends in .json");
  text::SampleOptions sample;
  auto sampled = [&](const std::string& word) {
    Verb verb = sample_verb("minigpt", sample, model_of);
    return error_of([&] { parse("minigpt", verb, Words{word}); }, Exit::usage);
  };
  EXPECT_EQ(sampled("--temperature=-1"), "--temperature: `-1`; expected a number, 0 or more");
  EXPECT_EQ(sampled("--top-p=0"), "--top-p: `0`; expected a number in (0, 1]");
  EXPECT_EQ(sampled("--top-p=1.01"), "--top-p: `1.01`; expected a number in (0, 1]");
  EXPECT_EQ(sampled("--top-k=-1"), "--top-k: `-1`; expected a whole number in [0, 2147483647]");
  EXPECT_EQ(sampled("--samples=0"), "--samples: `0`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(sampled("--tokens=-1"), "--tokens: `-1`; expected a whole number in [0, 2147483647]");
}

// Parity trains a smaller model than training does, unless it is told another.
TEST(Config, ParityHasDefaultsOfItsOwn) {
  Config config;
  text::SampleOptions sample;
  auto program = program_options(config, sample);
  Verb parity = parity_verb(program, "parity");
  EXPECT_LT(config.model.width, ModelConfig{}.width);
  auto value = [&](const std::string& name) {
    return value_text(*std::ranges::find(parity.settings, name, &Setting::name));
  };
  EXPECT_LT(std::stoi(value("steps")), parallel::TrainOptions{}.steps);
  EXPECT_TRUE(parse("minigpt", parity, Words{"--mesh", "1x2x1", "--width", "64"}).verb);
  EXPECT_EQ(config.model.width, 64);
  EXPECT_EQ(parallel::mesh_of(value("mesh")), (parallel::MeshShape{1, 2, 1}));
}

}  // namespace triax::minigpt::config_test
