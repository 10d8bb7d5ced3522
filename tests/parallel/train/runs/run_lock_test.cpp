// One job at a time writes to a run directory.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::parallel::run_lock_test {

using namespace test;

/// A job of its own that holds the lock of a directory until it is killed.
class Job {
 public:
  explicit Job(const std::string& directory) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    process_ = fork();
    if (process_ == 0) hold(directory, ends[1]);
    close(ends[1]);
    char byte;
    holds_ = read(ends[0], &byte, 1) == 1;
    close(ends[0]);
  }
  ~Job() { end(); }
  Job(const Job&) = delete;

  bool holds() const { return holds_; }
  pid_t process() const { return process_; }
  void end() {
    if (process_ < 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }

 private:
  [[noreturn]] static void hold(const std::string& directory, int tell) {
    try {
      RunLock lock(directory);
      if (write(tell, "h", 1) == 1)
        while (true) pause();
    } catch (const std::exception&) {
    }
    _exit(1);  // not into the tests that follow
  }
  pid_t process_;
  bool holds_ = false;
};

TEST(RunLockTest, TheSecondHolderIsToldOfTheFirst) {
  TemporaryDirectory dir;
  write_bytes(dir / "config.toml", "kept");
  Job first(dir.path());
  ASSERT_TRUE(first.holds());
  std::string before = read_bytes(dir / "lock");
  char host[256] = "";
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  std::string who = "process " + std::to_string(first.process()) + " on " + host + " since 2";
  EXPECT_EQ(before.find(who), 0u) << before;
  expect_config_error([&] { RunLock second(dir.path()); },
                      {"run directory " + dir.path() + " is in use by " + who,
                       "choose another --out. Nothing was changed."});
  EXPECT_EQ(read_bytes(dir / "lock"), before);
  EXPECT_EQ(read_bytes(dir / "config.toml"), "kept");
  EXPECT_EQ(disk().list(dir.path()).size(), 2u);
  EXPECT_FALSE(Job(dir.path()).holds()) << "nor does another process get it";
}

TEST(RunLockTest, AKilledJobHoldsNothing) {
  TemporaryDirectory dir;
  Job job(dir.path());
  ASSERT_TRUE(job.holds());
  job.end();
  RunLock next(dir.path());
  EXPECT_EQ(read_bytes(dir / "lock").find("process " + std::to_string(getpid()) + " on "), 0u);
  expect_config_error([&] { RunLock third(dir.path()); },
                      {"in use by process " + std::to_string(getpid())});
}

TEST(RunLockTest, EndsWithItsHolder) {
  TemporaryDirectory dir, other;
  auto first = std::make_unique<RunLock>(dir.path());
  RunLock elsewhere(other.path());
  write_bytes(dir / "note", "kept");
  first.reset();
  Job next(dir.path());
  EXPECT_TRUE(next.holds());
  EXPECT_EQ(read_bytes(dir / "note"), "kept");
}

// What the first job is saving must not be removed by the second.
TEST(RunLockTest, HoldsForTheDirectoryByAnyName) {
  TemporaryDirectory dir;
  std::string run = dir / "run", saving = run + "/step-2.tmp-1";
  std::filesystem::create_directories(saving);
  std::filesystem::create_directory_symlink(run, dir / "link");
  Job first(run);
  ASSERT_TRUE(first.holds());
  auto o = tiny_options();
  o.out = dir / "link";
  expect_config_error(
      [&] { run_worlds(1, [&](World& world) { Trainer(task_of(), o, world).run(); }); },
      {"run directory " + o.out + " is in use by process"});
  EXPECT_TRUE(std::filesystem::exists(saving));
}

// A run directory may come from somebody else.
TEST(RunLockTest, ALinkIsNotFollowed) {
  TemporaryDirectory dir, other;
  write_bytes(other / "mine", "kept");
  std::filesystem::create_symlink(other / "mine", dir / "lock");
  expect_error([&] { RunLock lock(dir.path()); }, {"cannot write " + dir.path() + "/lock: "},
               Exit::cannot_write);
  EXPECT_EQ(read_bytes(other / "mine"), "kept");
}

// The text of a job with a longer name must not show behind that of the next.
TEST(RunLockTest, SaysWhoHoldsItAndNothingElse) {
  TemporaryDirectory dir;
  write_bytes(dir / "lock", std::string(400, 'x'));
  RunLock lock(dir.path());
  EXPECT_EQ(read_bytes(dir / "lock").find('x', read_bytes(dir / "lock").find(" since ")),
            std::string::npos);
}

TEST(RunLockTest, ADirectoryThatCannotBeWrittenIsNamed) {
  TemporaryDirectory dir;
  expect_error([&] { RunLock lock(dir / "none"); },
               {"run directory: cannot write " + (dir / "none/lock")}, Exit::cannot_write);
}

}  // namespace triax::parallel::run_lock_test
