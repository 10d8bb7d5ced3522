#include "triax/parallel/comm/launch/stop_signal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "tests/support/expect_error.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/comm/wait.h"

namespace triax::parallel::stop_signal_test {

struct End {
  int status;
  std::string said;  ///< on stderr
};

/// How a process that does `body` ends.
End end_of(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  End end{};
  char part[256];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;) end.said.append(part, size_t(n));
  ::close(ends[0]);
  ::waitpid(child, &end.status, 0);
  return end;
}

TEST(StopSignal, OnlyAsksAndEveryThreadSeesIt) {
  std::signal(SIGHUP, SIG_DFL);  // whatever these tests were started with
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    StopSignal stop;
    EXPECT_FALSE(StopSignal::seen());
    std::raise(signal);
    std::thread([] { EXPECT_TRUE(StopSignal::seen()); }).join();
  }
  EXPECT_FALSE(StopSignal::seen());
}

TEST(StopSignal, AHangUpIsIgnoredUnderNohup) {
  End end = end_of([] {
    std::signal(SIGHUP, SIG_IGN);
    {
      StopSignal stop;
      std::raise(SIGHUP);
      if (StopSignal::seen()) ::_exit(3);
    }
    std::raise(SIGHUP);
    ::_exit(4);
  });
  EXPECT_TRUE(WIFEXITED(end.status));
  EXPECT_EQ(WEXITSTATUS(end.status), 4);
}

TEST(StopSignal, TheSecondCtrlCSaysTheFarewellAndEnds) {
  auto interrupted_twice = [](const std::string& farewell) {
    return end_of([&] {
      StopSignal stop;
      StopSignal::set_farewell("an older one");
      StopSignal::set_farewell(farewell);
      std::raise(SIGINT);
      if (!StopSignal::seen()) ::_exit(3);
      std::raise(SIGINT);
    });
  };
  End end = interrupted_twice("stopped; newest checkpoint: runs/a/step-30\n");
  EXPECT_TRUE(WIFSIGNALED(end.status));
  EXPECT_EQ(WTERMSIG(end.status), SIGINT);
  EXPECT_EQ(end.said, "stopped; newest checkpoint: runs/a/step-30\n");
  EXPECT_EQ(interrupted_twice("").said, "");
  EXPECT_EQ(interrupted_twice(std::string(100'000, 'x')).said.size(), StopSignal::max_farewell);
}

TEST(StopSignal, AFarewellIsForgottenWithIt) {
  {
    StopSignal stop;
    StopSignal::set_farewell("of a run that is over\n");
  }
  End end = end_of([] {
    StopSignal stop;
    std::raise(SIGINT);
    std::raise(SIGINT);
  });
  EXPECT_EQ(end.said, "");
}

// srun --kill-on-bad-exit sends SIGTERM to all once the first rank has left with its exit code.
TEST(StopSignal, ALauncherDoesNotEndWhoHasStopped) {
  auto ended_after = [](const char* variable, bool stopped, int then) {
    return end_of([&] {
      for (const char* of_launcher : {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "PMI_SIZE"})
        ::unsetenv(of_launcher);
      ::setenv(variable, "1", 1);
      {
        StopSignal stop;
        if (stopped) StopSignal::set_stopped();
      }
      std::raise(then);
      ::_exit(75);
    });
  };
  for (int then : {SIGUSR1, SIGTERM})
    EXPECT_EQ(WEXITSTATUS(ended_after("PMIX_RANK", true, then).status), 75);
  EXPECT_TRUE(WIFSIGNALED(ended_after("PMIX_RANK", false, SIGTERM).status)) << "it did not stop";
  EXPECT_TRUE(WIFSIGNALED(ended_after("ANOTHER", true, SIGTERM).status))
      << "no launcher started it";
}

TEST(StopSignal, AnotherSignalBetweenDoesNotCountAsTheSecond) {
  End end = end_of([] {
    StopSignal stop;
    StopSignal::set_farewell("too early\n");
    for (int signal : {SIGTERM, SIGINT, SIGTERM, SIGUSR1, SIGUSR1}) std::raise(signal);
    ::_exit(StopSignal::seen() ? 5 : 4);
  });
  EXPECT_TRUE(WIFEXITED(end.status));
  EXPECT_EQ(WEXITSTATUS(end.status), 5);
  EXPECT_EQ(end.said, "");
}

// A job that was suspended for longer than its time limit goes on; see also mpi_failures.sh.

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

}  // namespace triax::parallel::stop_signal_test
