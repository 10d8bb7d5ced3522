// TensorBoard reads the event files of a directory in the order of their names.
#include "parallel/train/watch/event_file.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/io/files.h"
#include "tests/support/temporary_directory.h"

namespace triax::parallel {
namespace {

/// The one that EventFile makes beside `others`.
std::string made_beside(const std::vector<std::string>& others) {
  test::TemporaryDirectory directory;
  for (auto& name : others) test::write_bytes(directory / name, "");
  EventFile file(directory.path(), 1);
  for (auto& name : disk().list(directory.path()))
    if (std::ranges::count(others, name) == 0) return name;
  return "";
}

TEST(EventFile, SortsBehindOthersThoughTheClockWentBack) {
  const std::string prefix = "events.out.tfevents.";
  std::vector<std::vector<std::string>> cases = {
      {},
      {prefix + "1700000000.123456.host"},
      {prefix + "4000000000.123456.host"},
      {prefix + "4000000000.123456.a", prefix + "4000000001.123456.z", prefix + "1700000000.1.b"},
      {prefix + "4000000000.host.77.0"},  // PyTorch's
      {prefix + "4000000000.123456.host", "metrics.jsonl", "step-3", "zzz"},
  };
  for (auto& others : cases) {
    std::string name = made_beside(others);
    EXPECT_TRUE(name.starts_with(prefix)) << name;
    for (auto& other : others)
      if (other.starts_with(prefix)) {
        EXPECT_LT(other, name);
      }
  }
  test::TemporaryDirectory directory;  // and behind its own
  test::write_bytes(directory / (prefix + "4000000000.123456.host"), "");
  for (int i = 0; i < 3; ++i) EventFile(directory.path(), i);
  EXPECT_EQ(disk().list(directory.path()).size(), 4);
  EXPECT_NE(made_beside({prefix + "x"}), "") << "what is no number is left alone";
}

}  // namespace
}  // namespace triax::parallel
