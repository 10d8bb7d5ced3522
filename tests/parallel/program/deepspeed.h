#pragma once
#include <gtest/gtest.h>

#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/check.h"
#include "triax/parallel/program/deepspeed/deepspeed.h"
#include "triax/parallel/train/options/options.h"

namespace triax::test {

/// Options of train, and a DeepSpeed configuration that is applied to them.
class DeepSpeedFixture : public testing::Test {
 protected:
  // Returns the notes.
  std::string apply(const std::string& text, const std::vector<std::string>& given = {}) {
    write_bytes(dir_ / "ds.json", text);
    parallel::Settings settings = parallel::train_settings(o_);
    return parallel::apply_deepspeed({dir_ / "ds.json", "tiny", settings, given, dp_});
  }
  // The message, with the file's name alone.
  std::string refused(const std::string& text, const std::vector<std::string>& given = {}) {
    std::string message = error_of([&] { apply(text, given); }, Exit::config), folder = dir_ / "";
    for (size_t at; (at = message.find(folder)) != message.npos;) message.erase(at, folder.size());
    return message;
  }

  /// `text` is refused with this message, which begins with the file's name.
  void refuses(const std::string& text, const std::string& message) {
    EXPECT_EQ(refused(text), "ds.json" + message);
  }

  TemporaryDirectory dir_;
  parallel::TrainOptions o_;
  int64_t dp_ = 2;
};

}  // namespace triax::test
