#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <thread>

#include "parallel/checkpoint/directory.h"
#include "parallel/comm/threads/thread_comm.h"
#include "tests/support/temporary_directory.h"

namespace triax::parallel {
namespace {

// A process of its own that saves `step`, `step` + 1, ... and prunes, without end.
class Writer {
 public:
  Writer(CheckpointDirectory& all, int64_t step) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    process_ = fork();
    if (process_ == 0) write_without_end(all, step, ends[1]);
    close(ends[1]);
    told_ = ends[0];
  }
  ~Writer() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    close(told_);
  }
  Writer(const Writer&) = delete;

  /// Waits until a step more is saved; false if the writer died instead.
  bool saved() {
    char byte;
    return read(told_, &byte, 1) == 1;
  }

 private:
  [[noreturn]] static void write_without_end(CheckpointDirectory& all, int64_t step, int tell) {
    omp_set_num_threads(1);  // fork() did not copy the threads of the parent's team
    Tensor x = full({50'000}, 2, f32, cpu);
    try {
      for (bool heard = true; heard; ++step) {
        all.save(step, {{"x", "", {.full = x.shape()}, x}}, {});
        heard = write(tell, "s", 1) == 1;
        all.prune(2);
      }
    } catch (const std::exception& e) {
      std::fputs(e.what(), stderr);
    }
    _exit(1);  // not into the tests that follow
  }

  pid_t process_;
  int told_;
};

// A writer that is killed at any moment leaves a newest checkpoint that verifies, and it is one of
// this writer's own. TRIAX_KILLS sets the count.
TEST(KilledWriter, LeavesTheNewestWhole) {
  const char* wish = std::getenv("TRIAX_KILLS");
  const int kills = wish ? std::atoi(wish) : 50;
  using Clock = std::chrono::steady_clock;
  std::mt19937 random(5);
  test::TemporaryDirectory dir;
  auto alone = single_rank();
  CheckpointDirectory all(dir.path(), *alone);
  int64_t newest = 0;
  int leftovers = 0;
  for (int i = 0; i < kills; ++i) {
    {
      auto start = Clock::now();
      Writer writer(all, newest + 1);
      ASSERT_TRUE(writer.saved());
      // However fast this machine is: within the next save, the prune before it, or soon after.
      std::uniform_real_distribution<double> saves(0, 2);
      std::this_thread::sleep_for(saves(random) * (Clock::now() - start));
    }
    leftovers += disk().list(dir.path()).size() != all.steps().size();
    auto found = all.resume("auto");
    ASSERT_TRUE(found.has_value());
    ASSERT_GT(found->step(), newest);
    newest = found->step();
  }
  EXPECT_GT(leftovers, 0) << "no kill fell into a save";
}

}  // namespace
}  // namespace triax::parallel
