#include "parallel/checkpoint/over_communicator.h"

#include <gtest/gtest.h>

#include "parallel/comm/thread_comm.h"
#include "tests/parallel/checkpoint/sharding.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace triax::parallel {
namespace {

TEST(OverCommunicator, CarriesTextsOfAnyLength) {
  run_ranks(3, [](Communicator& world) {
    OverCommunicator ranks(world);
    for (size_t unit : {0, 1, 1000}) {
      std::string mine(unit * size_t(ranks.rank() + 1), char('a' + ranks.rank()));
      auto all = ranks.gather(mine);
      ASSERT_EQ(all.size(), ranks.rank() == 0 ? 3u : 0u);
      for (size_t r = 0; r < all.size(); ++r)
        EXPECT_EQ(all[r], std::string(unit * (r + 1), char('a' + int(r))));
      EXPECT_EQ(ranks.broadcast(mine), std::string(unit, 'a'));
    }
  });
}

TEST(OverCommunicator, SavesAndLoadsOnOtherRanks) {
  test::TemporaryDirectory dir;
  run_ranks(6, [&](Communicator& world) {
    OverCommunicator ranks(world);
    CheckpointDirectory all(dir.path(), ranks);
    EXPECT_FALSE(all.resume("auto").has_value());
    all.save(3, test::pieces_of({3, 2}, ranks.rank(), true), {});
    all.prune(1);
  });
  run_ranks(2, [&](Communicator& world) {
    OverCommunicator ranks(world);
    auto checkpoint = CheckpointDirectory(dir.path(), ranks).resume("auto");
    auto loaded = test::pieces_of({1, 2}, ranks.rank(), false);
    checkpoint->load(loaded);
    auto wanted = test::pieces_of({1, 2}, ranks.rank(), true);
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(test::same_bytes(loaded[i].value, wanted[i].value)) << wanted[i].name;
  });
}

TEST(OverCommunicator, AnErrorOfOneRankReachesAll) {
  test::TemporaryDirectory dir;
  run_ranks(3, [&](Communicator& world) {
    OverCommunicator ranks(world);
    test::expect_error(
        [&] {
          together(ranks, [&] {
            if (ranks.rank() > 0)
              throw Error(Exit::cannot_write,
                          "rank " + std::to_string(ranks.rank()) + " has no room");
          });
        },
        {"rank 1 has no room"}, Exit::cannot_write);
    EXPECT_EQ(ranks.broadcast("usable"), "usable");
  });
}

}  // namespace
}  // namespace triax::parallel
