// A job that was suspended for longer than its time limit goes on; see also mpi_failures.sh.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "parallel/comm/threads/thread_comm.h"
#include "parallel/comm/wait.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

constexpr double time_limit = 0.6;
constexpr auto suspended = std::chrono::milliseconds(1500);

/// Runs `body` in a process of its own, which stops itself with SIGSTOP, and lets it go on later.
/// Returns its exit code: that of a failure is 1.
int resumed(const std::function<void()>& body) {
  pid_t child = ::fork();
  if (child == 0) try {
      body();
      ::_exit(0);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(1);
    }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(WIFSTOPPED(status));
  std::this_thread::sleep_for(suspended);
  ::kill(child, SIGCONT);
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/// Stop this process, while others wait, and be no quicker than them to go on.
void suspend() {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::kill(::getpid(), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

TEST(Suspended, ThreadsDoNotCountTheTime) {
  auto job = [] {
    run_ranks(3,
              [](Communicator& c) {
                Tensor x = full({4}, 1, f32, cpu);
                if (c.rank() == 1) suspend();
                c.all_reduce(x).wait();
                if (x.to_host<float>()[0] != 3) throw std::runtime_error("a wrong sum");
              },
              {.time_limit = time_limit});
  };
  EXPECT_EQ(resumed(job), 0);
}

TEST(Suspended, ARankThatIsMissingAfterwardsIsStillNamed) {
  auto job = [] {
    test::expect_error(
        [] {
          run_ranks(2,
                    [](Communicator& c) {
                      if (c.rank() == 0) return c.barrier();
                      suspend();
                      std::this_thread::sleep_for(std::chrono::duration<double>(2 * time_limit));
                    },
                    {.time_limit = time_limit});
        },
        {"barrier()", "waiting for rank 1"}, Exit::peer_lost);
    if (testing::Test::HasFailure()) throw std::runtime_error("not named");
  };
  EXPECT_EQ(resumed(job), 0);
}

TEST(Suspended, ADeadlineDoesNotCountTheTime) {
  auto job = [] {
    Deadline deadline("a test", time_limit);
    suspend();
  };
  EXPECT_EQ(resumed(job), 0);
}

}  // namespace
}  // namespace triax::parallel
