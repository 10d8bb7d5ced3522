// CPU quotas as Linux shows them, in directories of the test's own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "tests/support/temporary_directory.h"
#include "triax/core/profile.h"
#include "triax/parallel/comm/clocks.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/comm/threads/thread_comm.h"

namespace triax::parallel::cpu_quota_test {

constexpr double none = std::numeric_limits<double>::infinity();

/// What /proc/self/cgroup says, files by path below the mount, and the cores that they come to.
struct Case {
  const char* name;
  std::string of_process;
  std::map<std::string, std::string> files;
  double cores;
};

TEST(CpuQuota, IsTheLeastOfAGroupAndThoseAroundIt) {
  const Case cases[] = {
      {"none", "0::/user.slice\n", {{"user.slice/cpu.max", "max 100000\n"}}, none},
      {"no files", "0::/a/b\n", {}, none},
      {"a container's", "0::/\n", {{"cpu.max", "200000 100000\n"}}, 2},
      {"part of a core", "0::/\n", {{"cpu.max", "50000 100000\n"}}, 0.5},
      {"a group's", "0::/a/b\n", {{"a/b/cpu.max", "300000 200000\n"}}, 1.5},
      {"one around it",
       "0::/a/b/c\n",
       {{"a/cpu.max", "100000 100000\n"},
        {"a/b/cpu.max", "400000 100000\n"},
        {"a/b/c/cpu.max", "max 100000"}},
       1},
      {"a neighbour's", "0::/a\n", {{"b/cpu.max", "100000 100000\n"}}, none},
      {"the host's path", "0::/docker/123\n", {{"cpu.max", "300000 100000\n"}}, 3},
      {"a path outside", "0::/../x\n", {{"cpu.max", "300000 100000\n"}}, 3},
      {"version 1",
       "5:memory:/m\n4:cpu,cpuacct:/a\n0::/\n",
       {{"cpu,cpuacct/a/cpu.cfs_quota_us", "150000\n"},
        {"cpu,cpuacct/a/cpu.cfs_period_us", "50000\n"},
        {"cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
        {"cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
       3},
      {"version 1 of a container",
       "4:cpuacct,cpu:/docker/123\n",
       {{"cpu/cpu.cfs_quota_us", "200000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
       2},
      {"version 1 without",
       "4:cpu:/\n",
       {{"cpu/cpu.cfs_quota_us", "-1\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
       none},
      {"cpuset is another controller",
       "4:cpuset:/\n",
       {{"cpuset/cpu.cfs_quota_us", "100000\n"}, {"cpuset/cpu.cfs_period_us", "100000\n"}},
       none},
      {"both versions", "4:cpu:/\n0::/a\n", {{"unified/a/cpu.max", "200000 100000\n"}}, 2},
      {"what is no number", "0::/\n", {{"cpu.max", "many 100000\n"}}, none},
      {"no period", "0::/\n", {{"cpu.max", "100000 0\n"}}, none},
      {"nothing said", "", {{"cpu.max", "100000 100000\n"}}, none},
  };
  for (const Case& c : cases) {
    test::TemporaryDirectory directory;
    test::write_bytes(directory / "of_process", c.of_process);
    for (auto& [name, text] : c.files) {
      std::filesystem::path file = directory / ("mount/" + name);
      std::filesystem::create_directories(file.parent_path());
      test::write_bytes(file, text);
    }
    EXPECT_EQ(cpu_quota({directory / "of_process", directory / "mount"}), c.cores) << c.name;
  }
  EXPECT_EQ(cpu_quota({"/no/such", "/no/such"}), none);
  EXPECT_GT(cpu_quota(), 0);
}

constexpr int64_t second = 1000000000;

TEST(Clocks, OfAnotherHostIsMeasured) {
  run_ranks(4, [](Communicator& ranks) {
    int64_t ahead = ranks.rank() * 7 * second;
    HostClock mine{.host = "host" + std::to_string(ranks.rank() / 2),
                   .now = [=] { return Profile::now() + ahead; }};
    int64_t offset = clock_offset(ranks, mine);
    if (ranks.rank() < 2) EXPECT_EQ(offset, 0) << "rank 0's host has one clock";
    else EXPECT_LT(std::abs(offset + ahead), second / 10) << "rank " << ranks.rank();
  });
}

TEST(Clocks, OfThisHostNeedNoMeasurement) {
  run_ranks(3, [](Communicator& ranks) { EXPECT_EQ(clock_offset(ranks), 0); });
  EXPECT_FALSE(host_clock().host.empty());
}

}  // namespace triax::parallel::cpu_quota_test
