#include "examples/text/sample.h"

#include <fmt/core.h>

#include "examples/llama/config.h"
#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/parallel/checkpoint/directory.h"
#include "triax/parallel/comm/launch/world.h"

namespace triax::minigpt::sample_test {

// Checksums keep out accidents; what somebody wrote on purpose must end with an error too.
TEST(Sample, DoesNotTrustTheSizesInACheckpoint) {
  test::TemporaryDirectory directory;
  auto alone = parallel::single_rank();
  const std::map<std::string, std::string> good = {{"layers", "1"}, {"heads", "1"},
                                                   {"width", "4"},  {"context", "2"},
                                                   {"vocab", "3"},  {"precision", "\"fp32\""}};
  std::string tokenizer = text::Tokenizer::from_text("abc").json();
  int64_t step = 0;
  auto piece = [](const char* name, const Shape& shape) {
    return parallel::Piece{name, "", {.full = shape}, zeros(shape, f32, cpu)};
  };
  auto sample_with = [&](const std::string& key, const std::string& value) {
    auto settings = good;
    settings[key] = value;
    parallel::CheckpointState state{{"tokenizer", tokenizer}};
    for (auto& [name, literal] : settings) state["settings"] += name + " = " + literal + "\n";
    parallel::CheckpointDirectory(directory.path(), *alone)
        .save(++step,
              {piece("block0.proj.weight", {4, 4}), piece("positions.table", {2, 4}),
               piece("tokens.table", {3, 4})},
              state);
    parallel::run_worlds(1, [&](parallel::World& world) {
      text::sample({.checkpoint = fmt::format("{}/step-{}", directory.path(), step), .prompt = "a"},
                   model_of, world);
    });
  };
  for (const char* key : {"layers", "heads", "width", "context", "vocab"})
    for (const char* value : {"many", "", "0", "-1", "1.5", "99999999999999999999"}) {
      if (key == std::string("vocab") && value == std::string("0")) continue;  // the tokenizer's
      test::expect_data_error([&] { sample_with(key, value); },
                              {fmt::format("{}: `{}`; expected a whole number", key, value)});
    }
  test::expect_data_error([&] { sample_with("precision", "\"fp8\""); },
                          {"precision: `fp8`; expected one of: fp32"});
  for (auto [key, value, tensor] : {std::tuple("layers", "2000000000", "block1.proj"),
                                    {"context", "2000000000", "positions.table [2000000000, 4]"},
                                    {"vocab", "2000000000", "tokens.table [2000000000, 4]"},
                                    {"width", "2", "block0.proj.weight [2, 2]"}})
    test::expect_data_error([&] { sample_with(key, value); },
                            {std::string("its settings describe a tensor ") + tensor});
  for (const char* vocab : {"0", "3"})
    test::expect_data_error([&] { sample_with("vocab", vocab); }, {"it has no tensor "});
  tokenizer = "abc";
  test::expect_data_error([&] { sample_with("width", "4"); },
                          {"does not start with an open brace"});
}

TEST(Sample, TakesTheAverageIfThereIsOne) {
  test::TemporaryDirectory directory;
  test::write_bytes(directory / "text.txt",
                    std::string(300, 'a') + std::string(300, 'b') + "cdefg");
  auto text = [&](double average, parallel::Weights weights) {
    Job t;
    t.model = {.layers = 1, .heads = 4, .width = 16, .context = 8};
    t.text.data = directory / "text.txt";
    t.train.steps = 4, t.train.lr.warmup = 0, t.train.lr.peak = 0.1;
    t.step().average = average;
    t.train.out = directory / fmt::format("run{}", average);
    t.train.resume = "auto";
    EXPECT_EQ(train(t, 1), Exit::ok);
    testing::internal::CaptureStdout();
    parallel::run_worlds(1, [&](parallel::World& world) {
      text::sample({.checkpoint = t.train.out, .weights = weights, .prompt = "ab", .tokens = 30},
                   model_of, world);
    });
    return testing::internal::GetCapturedStdout();
  };
  using parallel::Weights;
  EXPECT_NE(text(0.9, Weights::average), text(0.9, Weights::trained));
  EXPECT_EQ(text(0.9, Weights::trained), text(0, Weights::trained));
  test::expect_config_error([&] { text(0, Weights::average); }, {"weights=average of checkpoint"});
  (void)testing::internal::GetCapturedStdout();
}

}  // namespace triax::minigpt::sample_test
