#include "parallel/comm/clocks.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/profile.h"
#include "parallel/comm/threads/thread_comm.h"

namespace triax::parallel {
namespace {

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

}  // namespace
}  // namespace triax::parallel
