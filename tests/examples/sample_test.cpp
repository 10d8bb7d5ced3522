#include "examples/minigpt/sample.h"

#include <fmt/format.h>

#include "examples/minigpt/tokenizer.h"
#include "examples/minigpt/train.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/comm/launch/world.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace triax::minigpt {
namespace {

// Checksums keep out accidents; what somebody wrote on purpose must end with an error too.
TEST(Sample, DoesNotTrustTheSizesInACheckpoint) {
  test::TemporaryDirectory directory;
  auto alone = parallel::single_rank();
  const parallel::CheckpointState good = {{"layers", "1"},
                                          {"heads", "1"},
                                          {"width", "4"},
                                          {"context", "2"},
                                          {"vocab", "3"},
                                          {"precision", "fp32"},
                                          {"tokenizer", Tokenizer::from_text("abc").json()}};
  int64_t step = 0;
  auto sample_with = [&](const std::string& key, const std::string& value) {
    parallel::CheckpointState state = good;
    state[key] = value;
    parallel::CheckpointDirectory(directory.path(), *alone)
        .save(++step, {{"x", "", {.full = {1}}, zeros({1}, f32, cpu)}}, state);
    sample({.checkpoint = fmt::format("{}/step-{}", directory.path(), step), .prompt = "a"});
  };
  for (const char* key : {"layers", "heads", "width", "context", "vocab"})
    for (const char* value : {"many", "", "0", "-1", "1.5", "99999999999999999999"})
      test::expect_error([&] { sample_with(key, value); },
                         {fmt::format("{} is `{}`; expected a whole number", key, value)},
                         Exit::data);
  test::expect_error([&] { sample_with("precision", "fp8"); }, {"precision is `fp8`"}, Exit::data);
  test::expect_error([&] { sample_with("tokenizer", "abc"); }, {"not a JSON object"}, Exit::data);
  test::expect_error([&] { sample_with("width", "4"); }, {"it has no tensor "}, Exit::data);
}

// correctness 29: the same text from any mesh.
TEST(Sample, SaysTheSameOnAnyMesh) {
  test::TemporaryDirectory directory;
  test::write_bytes(directory / "text.txt",
                    std::string(300, 'a') + std::string(300, 'b') + "cdefg");
  auto quietly = [](int ranks, auto body) {
    testing::internal::CaptureStdout();
    parallel::run_worlds(ranks, body);
    return testing::internal::GetCapturedStdout();
  };
  TrainConfig t{.data = directory / "text.txt"};
  t.model = {.layers = 3, .heads = 4, .width = 16, .context = 8};
  t.steps = 2;
  t.warmup = 0;
  t.out = directory / "run";
  quietly(1, [&](parallel::World& world) { train(t, world.comm(), world.host()); });
  auto text = [&](int pp, int tp) {
    SampleConfig c{.checkpoint = t.out, .prompt = "ab", .tokens = 30};
    c.mesh.pp = pp;
    c.mesh.tp = tp;
    return quietly(pp * tp, [&](auto& world) { sample(c, world.comm(), world.host()); });
  };
  std::string one = text(1, 1);
  EXPECT_EQ(one.size(), 2u + 30 + 1);
  for (auto [pp, tp] : {std::pair{1, 2}, {1, 4}, {2, 1}, {3, 1}, {2, 2}, {3, 4}})
    EXPECT_EQ(text(pp, tp), one) << "pp " << pp << ", tp " << tp;
}

}  // namespace
}  // namespace triax::minigpt
