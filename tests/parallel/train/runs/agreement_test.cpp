// Ranks that were told different things are refused before they train.
#include "parallel/train/runs/agreement.h"

#include <gtest/gtest.h>

#include "parallel/comm/threads/thread_comm.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

using namespace test;
using Told = std::map<std::string, std::string>;

const Told same{{"lr", "0.1"}, {"build", "4f2a"}, {"samples", "abc"}, {"note", ""}};

TEST(AgreementTest, RanksThatWereToldTheSameGoOn) {
  for (int ranks : {1, 2, 4})
    run_ranks(ranks, [](Communicator& world) {
      check_agreement(world, same);
      check_agreement(world, {});
    });
}

/// Rank `odd` of three is told something else: every rank throws, with these words.
void expect_refused(int odd, const Told& other, const std::string& first, const std::string& mine) {
  run_ranks(3, [&](Communicator& world) {
    // Rank 0 is what others are compared with: if it is odd, rank 1 is named.
    int named = odd == 0 ? 1 : odd;
    expect_config_error([&] { check_agreement(world, world.rank() == odd ? other : same); },
                        {"ranks disagree about the run\n  rank 0: " + (odd == 0 ? mine : first) +
                         "\n  rank " + std::to_string(named) + ": " + (odd == 0 ? first : mine) +
                         "\n  Start every rank with the same program"});
    check_agreement(world, same);  // ranks may go on
  });
}

TEST(AgreementTest, TheFirstLineThatDiffersIsNamed) {
  for (int odd : {0, 1, 2}) {
    SCOPED_TRACE(testing::Message() << "rank " << odd);
    Told build = same, both = same, missing = same, more = same;
    build["build"] = "77ff";  // another build of the program
    both["lr"] = "0.2", both["samples"] = "xyz";
    missing.erase("samples");
    more["z"] = "1";
    expect_refused(odd, build, "build = 4f2a", "build = 77ff");
    expect_refused(odd, both, "lr = 0.1", "lr = 0.2");
    expect_refused(odd, missing, "samples = abc", "(nothing)");
    expect_refused(odd, more, "(nothing)", "z = 1");
  }
}

TEST(AgreementTest, TheLowestRankThatDiffersIsNamed) {
  run_ranks(4, [](Communicator& world) {
    Told mine = same;
    if (world.rank() >= 2) mine["lr"] = std::to_string(world.rank());
    expect_config_error([&] { check_agreement(world, mine); },
                        {"rank 0: lr = 0.1", "rank 2: lr = 2"});
  });
}

// Linkers can leave it out; the one of these tests does not.
TEST(AgreementTest, ABuildHasAnIdOfItsOwn) {
  std::string id = build_id();
  EXPECT_EQ(id, build_id());
  EXPECT_GE(id.size(), 16u) << id;
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
}

}  // namespace
}  // namespace triax::parallel
