// A run that is stopped says how to go on: words that a shell takes back, whatever the path.
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdio>

#include "tests/support/call_program.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

/// A word a line, as a shell reads them.
std::string words_of(const std::string& line) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> shell(
      ::popen(("printf '%s\\n' " + line).c_str(), "r"), &::pclose);
  std::string words;
  std::array<char, 256> part;
  while (size_t n = std::fread(part.data(), 1, part.size(), shell.get()))
    words.append(part.data(), n);
  return words;
}

TEST(ResumeHint, IsReadBackByAShell) {
  test::TemporaryDirectory directory;
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.task = [] { return test::task_of(); };
  options.prepare = [](Trainer& t) { t.on({.step = [](auto&, auto&) { std::raise(SIGUSR1); }}); };
  for (const char* name :
       {"plain", "with spaces, 'quotes' and $HOME; longer than a terminal is wide"}) {
    std::string out = directory / name;
    test::Said said = test::said_by(options, {"tiny", "train", "--warmup", "0", "--out", out});
    EXPECT_EQ(said.code, int(Exit::stopped)) << said.err;
    const std::string before = "  Go on with ";
    size_t at = said.out.find(before);
    ASSERT_NE(at, said.out.npos) << said.out;
    std::string hint = said.out.substr(at + before.size());
    ASSERT_EQ(hint.find('\n'), hint.size() - 1) << "one line: " << hint;
    EXPECT_EQ(
        words_of(hint),
        fmt::format("tiny\ntrain\n--config\n{0}/config.toml\n--out\n{0}\n--resume\nauto\n", out));
  }
}

}  // namespace
}  // namespace triax::parallel
