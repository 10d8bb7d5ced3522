#include "triax/parallel/checkpoint/background.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/thread_ranks.h"
#include "triax/core/check.h"
#include "triax/core/memory.h"
#include "triax/parallel/checkpoint/directory.h"
#include "triax/parallel/comm/threads/thread_comm.h"

namespace triax::parallel::background_test {

using namespace test;

/// What a rank of two holds: half of a matrix, and on rank 0 a vector, seen through a larger one.
std::vector<Piece> pieces_of(int rank) {
  Part half{.full = {6, 4}, .dim = 0, .begin = 3 * rank, .length = 3};
  std::vector<Piece> all = {{"w", "", half, full({3, 4}, 1.5 + rank, bf16, cpu)},
                            {"w", "m", half, full({12}, 2.5 + rank, f32, cpu)}};
  if (rank == 0) all.push_back({"b", "", {.full = {5}}, full({9}, 7, f32, cpu).narrow(0, 2, 5)});
  return all;
}

std::vector<std::string> names_in(const std::string& path) { return disk().list(path); }

void rethrow_all(const std::vector<std::exception_ptr>& thrown) {
  for (auto& e : thrown)
    if (e) std::rethrow_exception(e);
}

TEST(BackgroundSave, WritesTheBytesThatSavingWrites) {
  TemporaryDirectory dir;
  const CheckpointState state = {{"updates", "3"}};
  rethrow_all(thrown_by_ranks(2, [&](Communicator& ranks) {
    auto pieces = pieces_of(ranks.rank());
    CheckpointDirectory(dir / "now", ranks).save(3, pieces, state);
    CheckpointDirectory later(dir / "later", ranks);
    BackgroundSave save(later, ranks, 3, pieces, state);
    for (auto& p : pieces) fill_(p.value, 99);  // the next step
    save.commit();
    EXPECT_TRUE(names_in(dir / "later") == std::vector<std::string>{"step-3"});
  }));
  auto files = names_in(dir / "now/step-3");
  EXPECT_EQ(files.size(), 3u);
  EXPECT_EQ(names_in(dir / "later/step-3"), files);
  for (auto& file : files)
    EXPECT_TRUE(read_bytes(dir / ("now/step-3/" + file)) ==
                read_bytes(dir / ("later/step-3/" + file)))
        << file << " differs";
}

/// Writing waits until it is let, for five seconds.
struct Gate final : Files {
  explicit Gate(std::string wanted) : file(std::move(wanted)) {}
  int fault(const char* operation, const std::string& path) const override {
    if (std::string_view(operation) != "write" || path.find(file) == path.npos) return 0;
    for (int i = 0; i < 5000 && !open; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  }
  std::string file;
  std::atomic<bool> open = false;
};

// And all ranks are told alike when they are done.
TEST(BackgroundSave, NobodyWaitsForTheSlowestDisk) {
  TemporaryDirectory dir;
  Gate files("rank1");
  rethrow_all(thrown_by_ranks(2, [&](Communicator& ranks) {
    CheckpointDirectory all(dir.path(), ranks, files);
    BackgroundSave save(all, ranks, 3, pieces_of(ranks.rank()), {});
    for (int i = 0; i < 50; ++i) {
      EXPECT_FALSE(save.done()) << "of rank " << ranks.rank();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(all.steps().empty());
    if (ranks.rank() == 1) files.open = true;
    while (!save.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    save.commit();
    EXPECT_EQ(all.steps(), std::vector<int64_t>{3});
  }));
}

TEST(BackgroundSave, CountsItsCopyUntilItIsWritten) {
  TemporaryDirectory dir;
  auto alone = single_rank();
  Gate files("rank0");
  CheckpointDirectory all(dir.path(), *alone, files);
  Tensor x = full({1000}, 1, f32, cpu);
  int64_t before = memory::counter()->live(memory::buffers);
  auto counted = [&] { return memory::counter()->live(memory::buffers) - before; };
  BackgroundSave save(all, *alone, 3, {{"x", "", {.full = {1000}}, x}}, {});
  EXPECT_GE(counted(), 4000);
  EXPECT_LE(counted(), 4000 + 4096);
  files.open = true;
  while (!save.done()) std::this_thread::yield();
  EXPECT_EQ(counted(), 0) << "the copy outlives its file";
  save.commit();
}

TEST(BackgroundSave, FailsOnAllRanksAndLeavesNothing) {
  struct Full final : Files {
    int fault(const char* operation, const std::string& path) const override {
      bool hit = std::string_view(operation) == "fsync" && path.find("rank1") != path.npos;
      return hit ? ENOSPC : 0;
    }
  } files;
  TemporaryDirectory dir;
  auto thrown = thrown_by_ranks(2, [&](Communicator& ranks) {
    CheckpointDirectory all(dir.path(), ranks, files);
    CheckpointDirectory(dir.path(), ranks).save(2, pieces_of(ranks.rank()), {});
    BackgroundSave save(all, ranks, 3, pieces_of(ranks.rank()), {});
    try {
      while (!save.done()) std::this_thread::yield();
      save.commit();
    } catch (const Error&) {
      EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"step-2"});
      throw;
    }
  });
  for (auto& e : thrown)
    expect_error([&] { std::rethrow_exception(e); }, {"fsync", "rank1"}, Exit::cannot_write);
}

// Nor for rank 0's, where the manifest is.
TEST(BackgroundSave, NobodyWaitsForTheManifest) {
  TemporaryDirectory dir;
  Gate files(manifest_name);
  rethrow_all(thrown_by_ranks(2, [&](Communicator& ranks) {
    CheckpointDirectory all(dir.path(), ranks, files);
    BackgroundSave save(all, ranks, 3, pieces_of(ranks.rank()), {});
    for (int i = 0; i < 100; ++i) {
      EXPECT_FALSE(save.done()) << "of rank " << ranks.rank();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(all.steps().empty());
    ranks.barrier();  // both have looked
    files.open = true;
    while (!save.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    save.commit();
    EXPECT_EQ(all.steps(), std::vector<int64_t>{3});
  }));
}

/// A disk that takes ten milliseconds for each tensor.
struct Slow final : Files {
  int fault(const char* operation, const std::string&) const override {
    if (std::string_view(operation) == "write")
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return 0;
  }
};

// When an error ends the run meanwhile.
TEST(BackgroundSave, GivenUpItStopsWritingAndLeavesNothing) {
  TemporaryDirectory dir;
  Slow files;
  auto alone = single_rank();
  std::vector<Piece> many;
  for (int i = 0; i < 1000; ++i)
    many.push_back({fmt::format("x{}", i), "", {.full = {1}}, zeros({1}, f32, cpu)});
  CheckpointDirectory all(dir.path(), *alone, files);
  auto begun = std::chrono::steady_clock::now();
  {
    BackgroundSave save(all, *alone, 3, many, {});
    EXPECT_FALSE(save.done());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
  EXPECT_TRUE(names_in(dir.path()).empty());
}

// What a disk or a memory damages shows before the checkpoint gets its name.
TEST(CheckpointDirectory, WhatDoesNotReadBackIsNotKept) {
  struct Damages final : Files {
    int fault(const char* operation, const std::string& path) const override {
      if (std::string_view(operation) == "open" && path.ends_with("rank0.safetensors")) {
        std::string bytes = read_bytes(path);
        bytes.back() ^= 1;
        write_bytes(path, bytes);
      }
      return 0;
    }
  } files;
  TemporaryDirectory dir;
  auto alone = single_rank();
  std::vector<Piece> whole = {{"x", "", {.full = {4}}, zeros({4}, f32, cpu)}};
  CheckpointDirectory(dir.path(), *alone).save(2, whole, {});
  expect_error([&] { CheckpointDirectory(dir.path(), *alone, files).save(3, whole, {}); },
               {"rank0.safetensors, tensor x, checksum differs", "had just been written"},
               Exit::io);
  EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{"step-2"});
}

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

}  // namespace triax::parallel::background_test
