// The verbs that look at checkpoints: of runs, of other meshes, damaged in every way.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/call_program.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "triax/parallel/program/program.h"

namespace triax::parallel::checkpoint_verbs_test {

using namespace test;

class CheckpointVerbs : public testing::Test {
 protected:
  CheckpointVerbs() : options_{.name = "tiny", .what = "A test.", .train = tiny_options()} {
    options_.task = [] { return task_of(); };
    ::setenv("COLUMNS", "80", 1);
  }
  ~CheckpointVerbs() override { ::unsetenv("COLUMNS"); }

  /// Trains two steps; where.
  std::string run(const std::string& name, const std::vector<std::string>& flags = {}) {
    std::vector<std::string> words = {"tiny",     "train", "--steps", "2",
                                      "--warmup", "0",     "--out",   dir_ / name};
    words.insert(words.end(), flags.begin(), flags.end());
    Said said = said_by(options_, words);
    EXPECT_EQ(said.code, 0) << said.err;
    return dir_ / name;
  }
  Said checkpoint(std::vector<std::string> words) {
    words.insert(words.begin(), {"tiny", "checkpoint"});
    return said_by(options_, words);
  }

  TemporaryDirectory dir_;
  ProgramOptions options_;
};

const std::vector<std::string> four = {"--comm", "threads", "--ranks", "4",      "--dp",
                                       "2",      "--tp",    "2",       "--zero", "1"};

TEST_F(CheckpointVerbs, InspectSaysWhatIsThere) {
  Said said = checkpoint({"inspect", run("four", four)});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(says(said.out, "four/step-2: step 2\n"));
  EXPECT_TRUE(says(said.out, "mesh of dp 2 x pp 1 x tp 2, ZeRO 1, schedule 1f1b\n"));
  EXPECT_TRUE(says(said.out, "in 4 files, "));
  EXPECT_TRUE(says(said.out, "[32, 16]   f32   2.05 KB    4.1 KB  block0.up.weight\n"));
  EXPECT_TRUE(says(said.out, "parameters: weights "));
  EXPECT_TRUE(says(said.out, "  lr = 0.001\n"));
  EXPECT_EQ(checkpoint({"inspect", dir_ / "four/step-2"}).out, said.out);
}

TEST_F(CheckpointVerbs, LinesFitTheTerminal) {
  ::setenv("COLUMNS", "50", 1);
  Said said = checkpoint({"inspect", run("one")});
  std::istringstream lines(said.out);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), std::max<size_t>(50, dir_.path().size() + 30)) << line;
}

TEST_F(CheckpointVerbs, VerifyReadsEveryByte) {
  std::string step = run("one") + "/step-2", file = step + "/rank0.safetensors";
  EXPECT_TRUE(says(checkpoint({"verify", step}).out, "every checksum is right\n"));
  auto size = std::filesystem::file_size(file);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(std::streamoff(size - 1));
    int last = bytes.get();
    bytes.seekp(std::streamoff(size - 1));
    bytes.put(char(last ^ 1));
  }
  Said said = checkpoint({"verify", step});
  EXPECT_EQ(said.code, int(Exit::data));
  EXPECT_TRUE(says(said.err, step + " is damaged: rank0.safetensors, tensor "));
  EXPECT_TRUE(says(said.err, ", checksum differs"));
  EXPECT_EQ(checkpoint({"inspect", step}).code, 0) << "which reads the manifest alone";
}

TEST_F(CheckpointVerbs, FilesThatAreCutOrMissing) {
  std::string step = run("one") + "/step-2", file = step + "/rank0.safetensors";
  std::filesystem::resize_file(file, 1000);
  Said said = checkpoint({"verify", step});
  EXPECT_EQ(said.code, int(Exit::data));
  EXPECT_TRUE(says(said.err, "rank0.safetensors, 1000 bytes; expected "));
  std::filesystem::remove(file);
  said = checkpoint({"verify", step});
  EXPECT_EQ(said.code, int(Exit::data));
  EXPECT_TRUE(says(said.err, "rank0.safetensors: No such file"));
  std::ofstream(step + "/manifest.json", std::ios::app) << " ";
  for (const char* verb : {"inspect", "verify"}) {
    said = checkpoint({verb, step});
    EXPECT_EQ(said.code, int(Exit::data));
    EXPECT_TRUE(says(said.err, "is damaged: manifest.json, checksum differs"));
  }
}

TEST_F(CheckpointVerbs, DirectoriesThatAreNone) {
  std::filesystem::create_directory(dir_ / "folder");
  std::ofstream(dir_ / "folder/file") << "x";
  for (const char* verb : {"inspect", "verify"}) {
    EXPECT_EQ(checkpoint({verb, dir_ / "nowhere"}).code, int(Exit::not_found)) << verb;
    Said said = checkpoint({verb, dir_ / "folder"});
    EXPECT_EQ(said.code, int(Exit::data)) << verb;
    EXPECT_TRUE(says(said.err, "folder: this is not a checkpoint: it has no manifest.json"));
  }
}

TEST_F(CheckpointVerbs, WordsThatAreMissing) {
  auto refuses = [&](std::vector<std::string> words, const std::string& why) {
    Said said = checkpoint(std::move(words));
    EXPECT_EQ(said.code, int(Exit::usage));
    EXPECT_TRUE(says(said.err, why));
  };
  refuses({}, "tiny checkpoint: expected one of: inspect, verify");
  refuses({"look"}, "tiny checkpoint: unknown verb look; expected one of: inspect, verify");
  refuses({"diff", "a", "b"},
          "tiny checkpoint: unknown verb diff; it is `triax-compare-checkpoints A B` now; expected "
          "one of: inspect, verify");
  refuses({"verify"},
          "tiny checkpoint verify: DIR is not given; expected tiny checkpoint verify DIR");
  refuses({"verify", "a", "b"}, "`b` is no flag");
  EXPECT_TRUE(
      says(checkpoint({"verify", "--help"}).out, "Usage: tiny checkpoint verify DIR [-h]\n"));
}

// What a run's settings.txt says beyond its settings.

TEST(SettingsFile, KnowsTheWorkOfAModel) {
  test::TemporaryDirectory dir;
  ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
  options.task = [] { return test::task_of(); };
  // Two blocks of 16 x 32 and 32 x 16, a head of 4 x 16: 6 for each weight and sample.
  std::string flop = fmt::format("model FLOP per step = {}\n", 32 * (2 * 1024 + 64) * 6);
  for (std::string ranks : {"1", "4"}) {
    std::string axis = ranks == "1" ? "1" : "2";
    ASSERT_EQ(test::call(options, {"tiny", "train", "--steps", "1", "--warmup", "0", "--comm",
                                   "threads", "--ranks", ranks, "--dp", axis, "--tp", axis,
                                   "--global-batch", "32", "--out", dir / ranks}),
              0);
    EXPECT_TRUE(test::says(test::read_bytes(dir / ranks + "/settings.txt"), flop)) << ranks;
  }
}

}  // namespace triax::parallel::checkpoint_verbs_test
