#include "triax/parallel/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <numeric>

#include "tests/parallel/checkpoint/sharding.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/thread_ranks.h"
#include "triax/core/check.h"

namespace triax::parallel::checkpoint_test {

using namespace test;

void expect_no_errors(const std::vector<std::exception_ptr>& thrown) {
  for (const auto& e : thrown)
    if (e) try {
        std::rethrow_exception(e);
      } catch (const std::exception& what) {
        ADD_FAILURE() << what.what();
      }
}

void save(const std::string& path, const Cut& cut, int64_t step) {
  expect_no_errors(thrown_by_ranks(cut.ranks(), [&](Communicator& ranks) {
    CheckpointDirectory(path, ranks)
        .save(step, pieces_of(cut, ranks.rank(), true),
              {{"scale", "0x1p+16"}, {"config", "tp = \"2\"\n"}});
  }));
}

TEST(Checkpoint, AnyCutLoadsWhatAnyOtherSaved) {
  const std::vector<Cut> cuts = {{1, 1}, {2, 1}, {3, 1}, {1, 3}, {2, 2}, {3, 2}, {1, 7}};
  for (const Cut& from : cuts) {
    TemporaryDirectory dir;
    save(dir.path(), from, 400);
    for (const Cut& to : cuts)
      expect_no_errors(thrown_by_ranks(to.ranks(), [&](Communicator& ranks) {
        auto checkpoint = CheckpointDirectory(dir.path(), ranks).resume("auto");
        auto loaded = pieces_of(to, ranks.rank(), false);
        checkpoint->load(loaded);
        auto wanted = pieces_of(to, ranks.rank(), true);
        for (size_t i = 0; i < wanted.size(); ++i)
          EXPECT_TRUE(same_bytes(loaded[i].value, wanted[i].value))
              << wanted[i].name << " from " << from.tp << "x" << from.dp << " to " << to.tp << "x"
              << to.dp;
        EXPECT_EQ(checkpoint->step(), 400);
        EXPECT_EQ(checkpoint->state("scale"), "0x1p+16");
        EXPECT_EQ(checkpoint->state("config"), "tp = \"2\"\n");
      }));
  }
}

TEST(Checkpoint, LargeTensorsAreReadInWindows) {
  TemporaryDirectory dir;
  auto alone = single_rank();
  std::vector<float> values(700 * 3001);
  std::iota(values.begin(), values.end(), 0.f);
  Tensor x = from_host(values, {700, 3001}, cpu);
  CheckpointDirectory all(dir.path(), *alone);
  all.save(1, {{"x", "", {.full = x.shape()}, x}}, {});
  auto checkpoint = all.resume("auto");
  Tensor columns = checkpoint->read("x", {.full = x.shape(), .dim = 1, .begin = 17, .length = 900});
  EXPECT_TRUE(same_bytes(columns, x.narrow(1, 17, 900)));
  Tensor flat =
      checkpoint->read("x", {.full = x.shape(), .flat_begin = 12345, .flat_end = 2'000'000});
  EXPECT_TRUE(same_bytes(flat, x.view({-1}).narrow(0, 12345, 2'000'000 - 12345)));
}

TEST(Checkpoint, WhatDoesNotFitIsRefusedBeforeAnythingChanges) {
  TemporaryDirectory dir;
  save(dir.path(), {2, 2}, 1);
  auto alone = single_rank();
  auto checkpoint = CheckpointDirectory(dir.path(), *alone).resume("auto");
  auto refuses = [&](const std::string& why, const std::function<void(std::vector<Piece>&)>& edit,
                     Exit code = Exit::data) {
    auto pieces = pieces_of({1, 1}, 0, false);
    edit(pieces);
    expect_error([&] { checkpoint->load(pieces); }, {why}, code);
    for (const Piece& p : pieces)
      EXPECT_TRUE(same_bytes(p.value, zeros_like(p.value))) << p.name << " after " << why;
  };
  refuses("it has no tensor blocks.1.bias", [](auto& p) { p.back().name = "blocks.1.bias"; });
  refuses("it has no tensor scale@v", [](auto& p) { p[6].kind = "v"; });
  refuses("tensor blocks.0.down.bias is [6]; expected [7]", [](auto& p) {
    p[3].part.full = {7};
    p[3].value = zeros({7}, f32, cpu);
  });
  refuses("tensor blocks.0.down.bias is f32; expected f16",
          [](auto& p) { p[3].value = zeros({6}, f16, cpu); });
  refuses("tensor scale [] has no place in this model", [](auto& p) { p.erase(p.begin() + 6); });
  refuses(
      "[5] f32 on cpu for a part of 6 elements; expected [6] or flat",
      [](auto& p) { p[3].value = zeros({5}, f32, cpu); }, Exit::internal);
  auto some = pieces_of({1, 1}, 0, false);
  some.pop_back();
  checkpoint->load(some, Unclaimed::ignore);
  EXPECT_EQ(some[6].value.item(), logical_value(model[6]).item());
  expect_data_error([&] { checkpoint->state("step"); }, {"its state has no step"});
}

TEST(Checkpoint, WhatOneRankMissesIsAnErrorOnAll) {
  TemporaryDirectory dir;
  save(dir.path(), {1, 1}, 1);
  auto thrown = thrown_by_ranks(3, [&](Communicator& ranks) {
    auto checkpoint = CheckpointDirectory(dir.path(), ranks).resume("auto");
    auto pieces = pieces_of({1, 3}, ranks.rank(), false);
    if (ranks.rank() == 2) pieces.back().name = "other";
    checkpoint->load(pieces);
  });
  for (const auto& e : thrown)
    expect_data_error(
        [&] {
          ASSERT_TRUE(e);
          std::rethrow_exception(e);
        },
        {"it has no tensor other"});
}

TEST(Checkpoint, PiecesThatDoNotMakeAWholeAreNotSaved) {
  TemporaryDirectory dir;
  auto saves = [&](const std::string& why, std::function<void(int, std::vector<Piece>&)> edit) {
    auto thrown = thrown_by_ranks(2, [&](Communicator& ranks) {
      auto pieces = pieces_of({2, 1}, ranks.rank(), true);
      edit(ranks.rank(), pieces);
      CheckpointDirectory(dir.path(), ranks).save(1, pieces, {});
    });
    for (const auto& e : thrown)
      expect_error(
          [&] {
            ASSERT_TRUE(e);
            std::rethrow_exception(e);
          },
          {why});
    EXPECT_TRUE(disk().list(dir.path()).empty()) << why;
  };
  saves("embedding.weight [11, 4], element 20 is missing or stored twice", [](int rank, auto& p) {
    if (rank == 1) p.erase(p.begin());
  });
  saves("element 20 is missing or stored twice", [](int rank, auto& p) {
    if (rank == 1) p.push_back(p[0]);
  });
  saves("pieces disagree about tensor embedding.weight", [](int rank, auto& p) {
    if (rank == 1) p[0].value = p[0].value.to(f16);
  });
  saves("is not UTF-8", [](int, auto& p) { p[0].name = "\xff"; });
  auto alone = single_rank();
  expect_error(
      [&] {
        CheckpointDirectory(dir.path(), *alone).save(1, {}, {{"key", "\xff"}});
      },
      {"is not UTF-8"});
  EXPECT_TRUE(disk().list(dir.path()).empty());
}

// --- damage ------------------------------------------------------------------------------------

struct Small {
  TemporaryDirectory dir;
  std::string path = dir / "step-7";
  std::unique_ptr<Communicator> one = single_rank();
  Communicator& alone = *one;
  Small() {
    auto thrown = thrown_by_ranks(2, [&](Communicator& ranks) {
      Tensor w = full({2}, ranks.rank() + 1.5, f32, cpu);
      Part part{.full = {4}, .dim = 0, .begin = 2 * ranks.rank(), .length = 2};
      CheckpointDirectory(dir.path(), ranks).save(7, {{"w", "", part, w}}, {{"key", "value"}});
    });
    expect_no_errors(thrown);
  }
};

TEST(CheckpointDamage, EveryBitFlipIsDetectedAndItsFileNamed) {
  Small small;
  int in_tensors = 0, flipped = 0;
  for (const std::string& name : disk().list(small.path)) {
    const std::string file = small.path + "/" + name, good = read_bytes(file);
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] = char(bad[bit / 8] ^ (1 << bit % 8));
      write_bytes(file, bad);
      bool in_tensor = name != manifest_name && bit / 8 >= good.size() - 8;
      in_tensors += in_tensor, ++flipped;
      expect_data_error([&] { Checkpoint::open(small.path, small.alone); },
                        {in_tensor ? fmt::format("{}, tensor w, checksum differs", name) : name});
    }
    write_bytes(file, good);
  }
  EXPECT_EQ(in_tensors, 128);
  std::printf("damaged %d of %d\n", flipped, flipped);  // for scripts/campaign.sh
  EXPECT_EQ(Checkpoint::open(small.path, small.alone).step(), 7);
}

TEST(CheckpointDamage, EveryTruncationIsDetectedAndItsFileNamed) {
  Small small;
  size_t cut = 0;
  for (const std::string& name : disk().list(small.path)) {
    const std::string file = small.path + "/" + name, good = read_bytes(file);
    for (size_t bytes = 0; bytes <= good.size() + 1; ++bytes) {
      if (bytes == good.size()) continue;
      ++cut;
      write_bytes(file, bytes < good.size() ? good.substr(0, bytes) : good + "x");
      expect_data_error([&] { Checkpoint::open(small.path, small.alone); }, {name});
    }
    std::filesystem::remove(file);
    expect_data_error([&] { Checkpoint::open(small.path, small.alone); }, {name});
    write_bytes(small.dir / "elsewhere", good);
    std::filesystem::create_symlink(small.dir / "elsewhere", file);
    expect_data_error([&] { Checkpoint::open(small.path, small.alone); }, {name});
    std::filesystem::remove(file);
    write_bytes(file, good);
  }
  std::printf("damaged %zu of %zu\n", cut, cut);  // for scripts/campaign.sh
  EXPECT_EQ(Checkpoint::open(small.path, small.alone).step(), 7);
}

TEST(CheckpointDamage, FilesOfAnotherCheckpointAreDetected) {
  Small small;
  std::string a = small.path + "/rank0.safetensors", b = small.path + "/rank1.safetensors";
  std::filesystem::rename(a, small.dir / "swap");
  std::filesystem::rename(b, a);
  std::filesystem::rename(small.dir / "swap", b);
  expect_data_error([&] { Checkpoint::open(small.path, small.alone); },
                    {"rank0.safetensors, tensor w, checksum differs"});
}

TEST(CheckpointDamage, NoCheckpointIsNotFound) {
  Small small;
  expect_error([&] { Checkpoint::open(small.dir / "step-8", small.alone); }, {"no such directory"},
               Exit::not_found);
}

}  // namespace triax::parallel::checkpoint_test
