#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "triax/core/error.h"

namespace triax::test {

/// Does a text hold a part?
inline testing::AssertionResult says(const std::string& text, const std::string& part) {
  return (text.find(part) != text.npos ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "no `" << part << "` in: " << text;
}

/// The whole text of the Error that `work` throws, which must have `code`; empty if it throws none,
/// and then the test has failed.
template <class F> std::string error_of(F work, Exit code = Exit::internal) {
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(int(e.code()), int(code)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no Error; expected one with code " << int(code);
  return {};
}

/// `work` throws an Error with `code` whose text holds every one of `parts`.
template <class F>
void expect_error(F work, const std::vector<std::string>& parts, Exit code = Exit::internal) {
  std::string text = error_of(work, code);
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), text.npos) << "'" << text << "' does not hold '" << part << "'";
}
/// Expect an error of settings, or of data.
template <class F> void expect_config_error(F work, const std::vector<std::string>& parts) {
  expect_error(work, parts, Exit::config);
}
template <class F> void expect_data_error(F work, const std::vector<std::string>& parts) {
  expect_error(work, parts, Exit::data);
}

}  // namespace triax::test
