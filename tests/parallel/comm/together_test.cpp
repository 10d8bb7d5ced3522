#include "triax/parallel/comm/together.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/support/expect_error.h"
#include "triax/core/error.h"
#include "triax/parallel/comm/threads/thread_comm.h"

namespace triax::parallel::together_test {

TEST(Together, CarriesTextsOfAnyLength) {
  run_ranks(3, [](Communicator& ranks) {
    for (size_t unit : {0, 1, 1000}) {
      std::string mine(unit * size_t(ranks.rank() + 1), char('a' + ranks.rank()));
      auto all = gather_text(ranks, mine);
      ASSERT_EQ(all.size(), ranks.rank() == 0 ? 3u : 0u);
      for (size_t r = 0; r < all.size(); ++r)
        EXPECT_EQ(all[r], std::string(unit * (r + 1), char('a' + int(r))));
      EXPECT_EQ(broadcast_text(ranks, mine), std::string(unit, 'a'));
    }
  });
}

TEST(Together, AGroupOfOneKeepsItsTexts) {
  auto alone = single_rank();
  EXPECT_EQ(broadcast_text(*alone, "text"), "text");
  EXPECT_EQ(gather_text(*alone, ""), std::vector<std::string>{""});
  EXPECT_EQ(text_of_first(*alone, [] { return "done"; }), "done");
}

TEST(Together, AnErrorOfOneRankReachesAll) {
  run_ranks(3, [&](Communicator& ranks) {
    test::expect_error(
        [&] {
          together(ranks, [&] {
            if (ranks.rank() > 0)
              throw Error(Exit::cannot_write,
                          "rank " + std::to_string(ranks.rank()) + " has no room");
          });
        },
        {"rank 1 has no room"}, Exit::cannot_write);
    EXPECT_EQ(broadcast_text(ranks, "usable"), "usable");
  });
}

TEST(Together, AnErrorSaysOfWhichRankItIs) {
  run_ranks(4, [&](Communicator& world) {
    auto half = world.split(
        [](int rank) {
          return Communicator::Seat{rank % 2, rank / 2};
        },
        "half");
    auto fails = [&] {
      if (world.rank() == 3) throw Error(Exit::cannot_write, "no room");
    };
    auto in_half = [&] {  // told on in a group, then in another
      try {
        together(*half, fails);
      } catch (const Error& e) {
        throw e.saying(std::string("saving: ") + e.what());
      }
    };
    try {
      together(world, in_half);
      FAIL() << "expected an error";
    } catch (const Error& e) {
      EXPECT_EQ(e.what(), std::string("saving: no room"));
      EXPECT_EQ(e.rank(), 3);
    }
  });
}

// As of a task that reads its file without a look at it.
TEST(Together, AFileThatCannotBeReadIsNoMistakeOfTriax) {
  auto reads = [] {
    std::ifstream in("/");
    std::string bytes(std::istreambuf_iterator<char>(in), {});
  };
  auto alone = single_rank();
  test::expect_error([&] { together(*alone, reads); }, {"Is a directory"}, Exit::io);
  test::expect_error(
      [&] {
        try {
          reads();
        } catch (...) {
          rethrow_from("here");
        }
      },
      {"here: ", "Is a directory"}, Exit::io);
}

}  // namespace triax::parallel::together_test
