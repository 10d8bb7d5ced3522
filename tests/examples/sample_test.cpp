#include "examples/minigpt/sample.h"

#include <fmt/format.h>

#include "examples/minigpt/tokenizer.h"
#include "parallel/checkpoint/directory.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace triax::minigpt {
namespace {

// Checksums keep out accidents; what somebody wrote on purpose must end with an error too.
TEST(Sample, DoesNotTrustTheSizesInACheckpoint) {
  test::TemporaryDirectory directory;
  parallel::Alone alone;
  const parallel::CheckpointState good = {
      {"layers", "1"},  {"heads", "1"}, {"width", "4"},
      {"context", "2"}, {"vocab", "3"}, {"tokenizer", Tokenizer::from_text("abc").json()}};
  int64_t step = 0;
  auto sample_with = [&](const std::string& key, const std::string& value) {
    parallel::CheckpointState state = good;
    state[key] = value;
    parallel::CheckpointDirectory(directory.path(), alone)
        .save(++step, {{"x", "", {.full = {1}}, zeros({1}, f32, cpu)}}, state);
    sample({.checkpoint = fmt::format("{}/step-{}", directory.path(), step), .prompt = "a"});
  };
  for (const char* key : {"layers", "heads", "width", "context", "vocab"})
    for (const char* value : {"many", "", "0", "-1", "1.5", "99999999999999999999"})
      test::expect_error([&] { sample_with(key, value); },
                         {fmt::format("{} is `{}`; expected a whole number", key, value)},
                         Exit::data);
  test::expect_error([&] { sample_with("tokenizer", "abc"); }, {"not a JSON object"}, Exit::data);
  test::expect_error([&] { sample_with("width", "4"); }, {"no tensor tokens.table"}, Exit::data);
}

}  // namespace
}  // namespace triax::minigpt
