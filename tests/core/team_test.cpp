#include "triax/core/shared/team.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <stdexcept>
#include <thread>
#include <vector>

namespace triax {
namespace {

/// Calls a team and counts how often it ran each share.
std::vector<int> runs_of(int shares) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(shares));
  in_team(shares, [&](int share) { ++runs[size_t(share)]; });
  return {runs.begin(), runs.end()};
}

double processor_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

TEST(Team, RunsEveryShareOnce) {
  for (int i = 0; i < 2000; ++i)
    for (int shares : {0, 1, 2, 3, 7})
      ASSERT_EQ(runs_of(shares), std::vector<int>(size_t(shares), 1)) << "call " << i;
}

TEST(Team, HandsOutTasksOnce) {
  std::vector<std::atomic<int>> taken(1000);
  in_turns(1000, 3, [&](int64_t task, int) { ++taken[size_t(task)]; });
  EXPECT_EQ(std::vector<int>(taken.begin(), taken.end()), std::vector<int>(1000, 1));
}

// Also while others wait: helpers that block are woken.
TEST(Team, BlocksAfterAShortSpin) {
  runs_of(3);
  double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(processor_seconds() - before, 0.1);
  EXPECT_EQ(runs_of(3), std::vector<int>(3, 1));

  before = processor_seconds();  // two threads wait here for one
  in_team(3, [](int share) {
    if (share > 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  });
  EXPECT_LT(processor_seconds() - before, 0.1);
}

TEST(Team, ThrowsAfterAllHaveEnded) {
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> ended = 0;
    auto share = [&](int s) {
      if (s == thrower) throw std::runtime_error("a share failed");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++ended;
    };
    EXPECT_THROW(in_team(4, share), std::runtime_error);
    EXPECT_EQ(ended, 3);
  }
  EXPECT_EQ(runs_of(4), std::vector<int>(4, 1));
}

TEST(Team, InsideAnotherIsOneThread) {
  in_team(3, [](int outer) {
    EXPECT_EQ(threads_here(), 1);
    EXPECT_EQ(share_here(), outer);
    std::thread::id thread = std::this_thread::get_id();
    int expected = 0;
    in_team(4, [&](int inner) {
      EXPECT_EQ(inner, expected++);
      EXPECT_EQ(std::this_thread::get_id(), thread);
    });
    EXPECT_EQ(expected, 4);
    EXPECT_EQ(share_here(), outer);
  });
}

TEST(Team, OfOneLeavesThreadsToWorkInside) {
  std::thread([] {
    set_threads(3);
    EXPECT_EQ(threads_here(), 3);
    in_team(1, [](int) { EXPECT_EQ(threads_here(), 3); });
  }).join();
}

TEST(Team, OfEachThreadIsItsOwn) {
  std::vector<std::thread> threads;
  for (int t = 1; t <= 4; ++t)
    threads.emplace_back([t] {
      set_threads(t);
      for (int i = 0; i < 500; ++i) ASSERT_EQ(runs_of(t), std::vector<int>(size_t(t), 1));
      EXPECT_EQ(team_threads(), t);
    });
  for (auto& t : threads) t.join();
}

// Both shares are at work at once: each waits until the other has begun.
TEST(Team, HasAThreadForEachShare) {
  std::atomic<int> begun = 0;
  auto late = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  in_team(2, [&](int) {
    for (++begun; begun < 2 && std::chrono::steady_clock::now() < late;) std::this_thread::yield();
    EXPECT_EQ(begun, 2);
  });
}

TEST(Team, WorksAloneForATimeAfterHelpersCostTime) {
  std::thread([] {
    using std::chrono::milliseconds;
    set_threads(2);
    std::atomic<bool> begun = false;
    in_team(2, [&](int share) {
      if (share == 1) begun = true;
      else
        while (!begun) std::this_thread::yield();
      std::this_thread::sleep_for(milliseconds(share == 0 ? 2 : 60));
    });
    EXPECT_EQ(threads_here(), 1);  // two shares of a few milliseconds would have been sooner
    std::this_thread::sleep_for(milliseconds(800));
    EXPECT_EQ(threads_here(), 2);
  }).join();
}

// A child has no helper: shares that none begins are done by the caller.
TEST(Team, WithoutHelpersDoesAllHere) {
  runs_of(3);
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    std::exit(runs_of(3) == std::vector<int>(3, 1) ? 0 : 1);  // and ends without them
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace triax
