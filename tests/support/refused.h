#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "core/error.h"

namespace triax::test {

/// Runs `f`, which must throw an Error with `code`; its text, for the caller to look at.
template <class F> std::string refused(Exit code, F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const Error& e) {
    EXPECT_EQ(int(e.code()), int(code)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown; expected error " << int(code);
  return {};
}

/// A directory of this test alone, empty at first.
inline std::string fresh_directory() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string path = testing::TempDir() + "triax_" + info->test_suite_name() + "_" + info->name();
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

}  // namespace triax::test
