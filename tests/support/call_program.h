#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "triax/parallel/program/program.h"

namespace triax::test {

/// A whole program in this process; its exit code.
inline int call(const parallel::ProgramOptions& options, std::vector<std::string> words) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  return parallel::program(int(argv.size()), argv.data(), options);
}

/// What a program says on stdout and stderr, and its exit code.
struct Said {
  std::string out, err;
  int code;
};
inline Said said_by(const parallel::ProgramOptions& options,
                    const std::vector<std::string>& words) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  int code = call(options, words);
  std::string out = testing::internal::GetCapturedStdout();
  return {out, testing::internal::GetCapturedStderr(), code};
}

}  // namespace triax::test
