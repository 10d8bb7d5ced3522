#include "triax/parallel/checkpoint/directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/parallel/checkpoint/sharding.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/thread_ranks.h"
#include "triax/core/check.h"
#include "triax/parallel/checkpoint/background.h"

namespace triax::parallel::directory_test {

using namespace test;

std::vector<Piece> pieces(double value) {
  return {{"w", "", {.full = {3}}, full({3}, value, f32, cpu)}};
}
double value_of(Checkpoint& checkpoint) {
  return checkpoint.read("w", {.full = {3}, .flat_begin = 1, .flat_end = 2}).item();
}

// A run with checkpoints of steps 10, 20, ... that hold their own step.
struct SavedRun {
  TemporaryDirectory dir;
  std::unique_ptr<Communicator> one = single_rank();
  Communicator& alone = *one;
  CheckpointDirectory all{dir.path(), alone};
  explicit SavedRun(int count) {
    for (int i = 1; i <= count; ++i) all.save(10 * i, pieces(10 * i), {});
  }
  void damage(int64_t step) {
    std::string file = dir / fmt::format("step-{}/rank0.safetensors", step);
    std::string bytes = read_bytes(file);
    bytes.back() ^= 1;
    write_bytes(file, bytes);
  }
};

TEST(CheckpointDirectory, AutoTakesTheNewestOrNone) {
  SavedRun run(0);
  EXPECT_FALSE(run.all.resume("auto").has_value());
  EXPECT_FALSE(CheckpointDirectory(run.dir / "not/there", run.alone).resume("auto").has_value());
  expect_error([&] { run.all.resume("last-good"); }, {"there is none"}, Exit::not_found);
  run.all.save(9, pieces(9), {});
  run.all.save(10, pieces(10), {});
  auto newest = run.all.resume("auto");
  EXPECT_EQ(newest->step(), 10);  // by number: as text, 9 would come last
  EXPECT_EQ(value_of(*newest), 10);
  EXPECT_EQ(run.all.resume(run.dir / "step-9")->step(), 9);
  EXPECT_EQ(run.all.resume(run.dir.path())->step(), newest->step());  // a run's directory
  expect_error([&] { run.all.resume(run.dir / "step-11"); }, {"step-11"}, Exit::not_found);
}

TEST(CheckpointDirectory, ADamagedNewestIsNamedWithAWayOut) {
  SavedRun run(3);
  run.damage(30);
  std::string path = run.dir.path();
  for (const std::string& how : {std::string("auto"), path})
    expect_data_error([&] { run.all.resume(how); },
                      {"checkpoint " + path +
                       "/step-30 is damaged: rank0.safetensors, tensor w, checksum differs\n"
                       "  Nothing was loaded. Newest verified checkpoint: " +
                       path + "/step-20. Take it by its path"});
  EXPECT_EQ(run.all.resume("last-good")->step(), 20);
  std::filesystem::remove(path + "/step-20/manifest.json");
  EXPECT_EQ(run.all.resume("last-good")->step(), 10);
  run.damage(10);
  for (const char* how : {"auto", "last-good"})
    expect_data_error([&] { run.all.resume(how); }, {"No checkpoint in " + path + " verifies."});
}

TEST(CheckpointDirectory, OtherNamesAreNotCheckpoints) {
  SavedRun run(1);
  for (const char* name : {"step-", "step-x", "step-07", "step--5", "step-99999999999999999999",
                           "step-70 ", "step-80.old"})
    std::filesystem::create_directory(run.dir / name);
  write_bytes(run.dir / "step-90", "a file");
  EXPECT_EQ(run.all.steps(), std::vector<int64_t>{10});
  EXPECT_EQ(run.all.resume("auto")->step(), 10);
}

// As of one that was moved to another disk. What a link leads to is never removed.
TEST(CheckpointDirectory, FollowsLinksToCheckpoints) {
  SavedRun run(2);
  TemporaryDirectory other;
  auto moved = [&](const std::string& name) {
    std::filesystem::copy(run.dir / name, other / name);
    std::filesystem::remove_all(run.dir / name);
    std::filesystem::create_directory_symlink(other / name, run.dir / name);
  };
  moved("step-10"), moved("step-20");
  EXPECT_EQ(run.all.steps(), (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(run.all.resume("auto")->step(), 20);
  run.all.save(20, pieces(20), {});
  EXPECT_FALSE(std::filesystem::is_symlink(run.dir / "step-20"));
  run.all.prune(1);
  EXPECT_EQ(disk().list(run.dir.path()), std::vector<std::string>{"step-20"});
  for (const char* name : {"step-10", "step-20"})
    EXPECT_TRUE(std::filesystem::exists(other / name + "/manifest.json")) << name;
}

TEST(CheckpointDirectory, WhatCannotBeRemovedStays) {
  struct NoRemoval : Files {
    int fault(const char* operation, const std::string&) const override {
      return std::string(operation) == "remove" ? EACCES : 0;
    }
  } files;
  SavedRun run(3);
  CheckpointDirectory all(run.dir.path(), run.alone, files);
  testing::internal::CaptureStderr();
  all.prune(2);
  all.save(40, pieces(40), {});
  std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(
      said.find("checkpoint: " + (run.dir / "step-10") + " is not needed and stays: files: remove"),
      0U)
      << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_EQ(all.steps(), (std::vector<int64_t>{20, 30, 40}));
  EXPECT_EQ(disk().list(run.dir.path()).size(), 4U);
}

TEST(CheckpointDirectory, LeftoversOfDeadWritersAreIgnoredAndRemoved) {
  SavedRun run(1);
  // Killed while writing a tensor, before the manifest, just before the rename.
  std::filesystem::create_directories(run.dir / "step-20.tmp-1");
  write_bytes(run.dir / "step-20.tmp-1/rank0.safetensors", "part");
  std::filesystem::copy(run.dir / "step-10", run.dir / "step-30.tmp-2");
  EXPECT_EQ(run.all.resume("auto")->step(), 10);
  EXPECT_EQ(run.all.resume("last-good")->step(), 10);
  EXPECT_EQ(disk().list(run.dir.path()).size(), 3u) << "a reader must not remove them";
  std::filesystem::create_directory(run.dir / "notes.tmp-3");
  run.all.save(20, pieces(20), {});
  EXPECT_EQ(disk().list(run.dir.path()),
            (std::vector<std::string>{"notes.tmp-3", "step-10", "step-20"}));
  std::filesystem::create_directory(run.dir / "step-40.tmp-4");
  run.all.remove_leftovers();
  EXPECT_EQ(disk().list(run.dir.path()).size(), 3u);
}

TEST(CheckpointDirectory, SavingAStepAgainReplacesIt) {
  SavedRun run(2);
  run.damage(20);
  run.all.save(20, pieces(5), {});
  auto newest = run.all.resume("auto");
  EXPECT_EQ(value_of(*newest), 5);
  EXPECT_EQ(disk().list(run.dir.path()).size(), 2u);
}

/// Without an exchange of names, and whose rename number `failing` fails.
struct NetworkFiles final : Files {
  explicit NetworkFiles(int number = -1) : failing(number) {}
  int fault(const char* operation, const std::string&) const override {
    if (std::strcmp(operation, "exchange") == 0) return EINVAL;
    return std::strcmp(operation, "rename to") == 0 && renames++ == failing ? EIO : 0;
  }
  int failing;
  mutable int renames = 0;
};

TEST(CheckpointDirectory, ReplacesAlsoWhereExchangeIsNotSupported) {
  NetworkFiles files;
  SavedRun run(2);
  CheckpointDirectory(run.dir.path(), run.alone, files).save(20, pieces(5), {});
  auto newest = run.all.resume("auto");
  EXPECT_EQ(value_of(*newest), 5);
  EXPECT_EQ(disk().list(run.dir.path()).size(), 2u);
  EXPECT_EQ(files.renames, 3);
}

TEST(CheckpointDirectory, WhatIsToBeReplacedStaysUntilItIsReplaced) {
  SavedRun run(2);
  auto newest = [&] {
    auto checkpoint = run.all.resume("auto");
    return value_of(*checkpoint);
  };
  for (int failing : {0, 1}) {
    NetworkFiles files(failing);
    expect_error(
        [&] { CheckpointDirectory(run.dir.path(), run.alone, files).save(20, pieces(5), {}); },
        {"rename to"}, Exit::io);
    EXPECT_EQ(newest(), 20) << failing;
    EXPECT_EQ(disk().list(run.dir.path()).size(), 2u) << failing;
  }
  // Killed after the first rename of three: what was to replace the step is whole, and does.
  std::filesystem::rename(run.dir / "step-20", run.dir / "step-20.tmp-1");
  std::filesystem::copy(run.dir / "step-10", run.dir / "step-20.tmp-1-aside");
  run.all.remove_leftovers();
  EXPECT_EQ(newest(), 20);
  // It is not there, for whatever reason: back to what was set aside.
  std::filesystem::rename(run.dir / "step-20", run.dir / "step-20.tmp-1-aside");
  std::filesystem::create_directory(run.dir / "step-20.tmp-1");
  write_bytes(run.dir / "step-30.tmp-1-aside", "a file");
  run.all.remove_leftovers();
  EXPECT_EQ(newest(), 20);
  // Killed after the second.
  std::filesystem::copy(run.dir / "step-10", run.dir / "step-20.tmp-2-aside");
  run.all.remove_leftovers();
  EXPECT_EQ(newest(), 20);
  EXPECT_EQ(disk().list(run.dir.path()).size(), 2u);
}

TEST(CheckpointDirectory, PruneKeepsTheNewestAndNeverTheOnlyGoodOne) {
  SavedRun run(5);
  run.all.prune(3);
  EXPECT_EQ(run.all.steps(), (std::vector<int64_t>{30, 40, 50}));
  run.damage(50);
  CheckpointDirectory(run.dir.path(), run.alone).prune(1);  // not the one that has written it
  EXPECT_EQ(run.all.steps(), (std::vector<int64_t>{30, 40, 50}));
  run.all.save(60, pieces(60), {});
  run.all.prune(2);
  EXPECT_EQ(run.all.steps(), (std::vector<int64_t>{50, 60}));
  run.all.prune(7);
  EXPECT_EQ(disk().list(run.dir.path()).size(), 2u);
  expect_error([&] { run.all.prune(0); }, {"at least 1"});
}

/// Counts how often a rank's file is opened to be read.
struct Opened final : Files {
  int fault(const char* operation, const std::string& path) const override {
    count += std::strcmp(operation, "open") == 0 && path.ends_with(".safetensors");
    return 0;
  }
  mutable int count = 0;
};

TEST(CheckpointDirectory, WhatWasReadBackIsNotReadOnceMoreToPrune) {
  SavedRun run(2);
  Opened files;
  CheckpointDirectory all(run.dir.path(), run.alone, files);
  all.save(30, pieces(30), {});
  EXPECT_EQ(files.count, 1);
  all.prune(1);
  EXPECT_EQ(files.count, 1);
  EXPECT_EQ(all.steps(), std::vector<int64_t>{30});
}

TEST(CheckpointDirectory, KeepsTheOneWithTheLowestNumberToo) {
  SavedRun run(1);
  EXPECT_EQ(run.all.lowest("score"), std::nullopt);
  for (auto [step, score] : {std::pair{20, "0.5"}, {30, "0.25"}, {40, "1e-1"}, {50, "0.75"}})
    run.all.save(step, pieces(step), {{"score", score}});
  EXPECT_EQ(run.all.lowest("score"), std::pair(int64_t{40}, 0.1));
  run.all.prune(1, 40);
  EXPECT_EQ(run.all.steps(), (std::vector<int64_t>{40, 50}));
  disk().remove(run.dir.path() + "/step-40/manifest.json");
  EXPECT_EQ(run.all.lowest("score"), std::pair(int64_t{50}, 0.75))
      << "a damaged one is passed over";
}

struct Failing {
  int rank, error;
  bool replace;     // does step 20 exist already?
  bool background;  // does a thread write?
};

/// The code of a failure.
Exit code_of(const FaultyFiles& faulty, int error) {
  const std::string& what = faulty.failed();
  bool reads = what == "list" || what == "read" || what == "size of" ||
               (what == "open" && (faulty.failed_path().ends_with(".safetensors") ||
                                   faulty.failed_path().ends_with(".json")));
  return error == EIO || reads ? Exit::io : Exit::cannot_write;
}

// One failing operation on one of two ranks, at every operation of a save in turn. Step 10 has been
// saved already.
void fail_everywhere(const Failing& f, std::vector<std::string>& seen) {
  for (int at = 0;; ++at) {
    SavedRun run(f.replace ? 2 : 1);
    std::filesystem::create_directory(run.dir / "step-15.tmp-dead");
    FaultyFiles faulty(at, f.error);
    auto thrown = thrown_by_ranks(2, [&](Communicator& ranks) {
      const Files& files = ranks.rank() == f.rank ? faulty : disk();
      Part half{.full = {4}, .dim = 0, .begin = 2 * ranks.rank(), .length = 2};
      std::vector<Piece> mine = {{"w", "", half, full({2}, 20, f32, cpu)}};
      CheckpointDirectory all(run.dir.path(), ranks, files);
      if (f.background) BackgroundSave(all, ranks, 20, mine, {}).commit();
      else all.save(20, mine, {});
    });
    if (faulty.failed().empty()) {
      for (const auto& e : thrown) EXPECT_FALSE(e);
      return;
    }
    seen.push_back(faulty.failed());
    bool removes = faulty.failed() == "remove";  // which is said, and hinders nobody
    for (const auto& e : thrown) {
      if (removes) {
        EXPECT_FALSE(e);
        continue;
      }
      ASSERT_TRUE(e) << faulty.failed() << " failed and nobody noticed";
      expect_error([&] { std::rethrow_exception(e); },
                   {std::strerror(f.error), faulty.failed_path()}, code_of(faulty, f.error));
    }
    auto steps = run.all.steps();
    EXPECT_EQ(Checkpoint::open(run.dir / "step-10", run.alone).step(), 10) << faulty.failed();
    for (int64_t step : steps)  // whatever has its name is whole, be it old or new
      EXPECT_EQ(Checkpoint::open(run.dir / fmt::format("step-{}", step), run.alone).step(), step);
    EXPECT_GE(steps.size(), f.replace ? 2u : 1u) << faulty.failed();
    bool before_begin = std::filesystem::exists(run.dir / "step-15.tmp-dead");
    EXPECT_EQ(disk().list(run.dir.path()).size(), steps.size() + (before_begin || removes))
        << faulty.failed();
  }
}

TEST(CheckpointDirectory, AFailureAtAnyOperationKeepsWhatWasThere) {
  for (int rank : {0, 1})
    for (int error : {ENOSPC, EIO})
      for (bool replace : {false, true})
        for (bool background : {false, true}) {
          std::vector<std::string> seen;
          fail_everywhere({rank, error, replace, background}, seen);
          for (const char* operation : {"create", "write", "fsync", "read"})
            EXPECT_EQ(std::count(seen.begin(), seen.end(), operation) > 0, true) << operation;
          EXPECT_EQ(std::count(seen.begin(), seen.end(), replace ? "exchange" : "rename to"),
                    rank == 0);
          EXPECT_GE(seen.size(), rank == 0 ? 18u : 7u);
        }
}

/// The disk is full for rank 1, and removing takes its time.
struct FullAndSlow final : Files {
  int fault(const char* operation, const std::string& path) const override {
    std::string_view what = operation;
    if (what == "remove") std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return what == "write" && path.find("rank1") != path.npos ? ENOSPC : 0;
  }
};

// A rank that throws may end its process, and all others with it.
TEST(CheckpointDirectory, NoRankThrowsBeforeTheFilesOfItsFailureAreGone) {
  TemporaryDirectory dir;
  FullAndSlow files;
  auto thrown = thrown_by_ranks(2, [&](Communicator& ranks) {
    Part half{.full = {4}, .dim = 0, .begin = 2 * ranks.rank(), .length = 2};
    try {
      CheckpointDirectory(dir.path(), ranks, files)
          .save(20, {{"w", "", half, full({2}, 20, f32, cpu)}}, {});
    } catch (const Error&) {
      EXPECT_TRUE(disk().list(dir.path()).empty()) << "seen by rank " << ranks.rank();
      throw;
    }
  });
  for (const auto& e : thrown)
    expect_error([&] { std::rethrow_exception(e); }, {"rank1"}, Exit::cannot_write);
}

TEST(CheckpointDirectory, AFailureWhilePruningOrReadingIsNotDamage) {
  for (int at = 0;; ++at) {
    SavedRun run(3);
    FaultyFiles faulty(at, EIO);
    CheckpointDirectory all(run.dir.path(), run.alone, faulty);
    bool failed = false;
    try {
      all.prune(1);
    } catch (const Error& e) {
      failed = true;
      EXPECT_EQ(int(e.code()), int(Exit::io)) << e.what();
    }
    bool removes = faulty.failed() == "remove" || faulty.failed() == "rename to";
    EXPECT_EQ(failed, !faulty.failed().empty() && !removes);
    run.all.remove_leftovers();
    for (int64_t step : run.all.steps())
      EXPECT_EQ(run.all.resume(run.dir / fmt::format("step-{}", step))->step(), step);
    EXPECT_EQ(run.all.steps().back(), 30);
    if (faulty.failed().empty()) {
      EXPECT_EQ(run.all.steps().size(), 1u);
      break;
    }
  }
}

}  // namespace triax::parallel::directory_test
