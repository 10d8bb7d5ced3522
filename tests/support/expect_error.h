#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/error.h"

namespace triax::test {

/// `work` throws an Error with this code whose text holds `part`.
inline void expect_error(Exit code, const std::string& part, const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << "no Error; expected one with: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(int(e.code()), int(code)) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos)
        << e.what() << "\n  does not hold: " << part;
  }
}

}  // namespace triax::test
