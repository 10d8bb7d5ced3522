// A run that is saved and resumed is the run that never stopped, bit for bit: losses, gradient
// norms, weights and optimizer state. correctness 31, 32.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "examples/text/sample.h"
#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/parallel/comm/launch/world.h"

namespace triax::minigpt::resume_test {

namespace fs = std::filesystem;
using namespace test;

constexpr int64_t half = 6, whole = 2 * half;

/// A text and the run directories of one test.
class Resume : public testing::Test {
 protected:
  Resume() { write_bytes(text_, some_text(7)); }

  static std::string some_text(int step) {
    std::string text = "abcdefghijklm \n";
    for (int i = 0; i < 500; ++i) text += char('a' + (i * i / 3 + i * step) % 13);
    return text;
  }

  Job config(const std::string& run) const {
    Job c;
    c.model = {.layers = 2, .heads = 2, .width = 16, .context = 8, .dropout = 0.1};
    c.text.data = text_;
    c.step().mesh.dp = 0;
    c.step().micro_batch = 2;
    c.step().global_batch = 8;
    c.train.steps = whole;
    c.train.lr.warmup = 3;
    c.train.val_every = 5;
    c.train.save_every = half;
    c.train.out = directory_ / run;
    return c;
  }

  /// The run that `c` resumes: one that ended after its first half.
  void start(const Job& c, const std::string& from) const {
    fs::create_directories(c.train.out);
    std::string name = fmt::format("/step-{}", half);
    fs::copy(directory_ / from + name, c.train.out + name, fs::copy_options::recursive);
    fs::copy(directory_ / from + "/metrics.jsonl", c.train.out + "/metrics.jsonl");
  }

  TemporaryDirectory directory_;
  std::string text_ = directory_ / "text.txt";
};

Exit run(const Job& c, int ranks = 1) { return train(c, ranks); }

/// metrics.jsonl without what a clock says.
std::vector<nlohmann::json> metrics(const Job& c) {
  std::vector<nlohmann::json> records;
  std::istringstream lines(read_bytes(c.train.out + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    records.push_back(nlohmann::json::parse(line));
    for (const char* key : {"seconds", "tokens_per_second", "memory_bytes"})
      records.back().erase(key);
  }
  return records;
}

/// The tensors of a checkpoint: weights and moments, with their names and places.
std::string tensors(const Job& c, int64_t step = whole) {
  std::string bytes = read_bytes(fmt::format("{}/step-{}/rank0.safetensors", c.train.out, step));
  EXPECT_TRUE(says(bytes, "tokens.table@v"));
  return bytes;
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (auto& entry : fs::recursive_directory_iterator(path)) names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  return names;
}

void expect_bitwise_same(const Job& a, const Job& b) {
  auto left = metrics(a), right = metrics(b);
  ASSERT_EQ(left.size(), size_t(whole));
  ASSERT_EQ(right.size(), size_t(whole));
  for (size_t i = 0; i < size_t(whole); ++i) {
    EXPECT_EQ(left[i]["step"], i + 1);  // each step once, in order
    EXPECT_EQ(left[i], right[i]);
  }
  EXPECT_TRUE(tensors(a) == tensors(b)) << "the checkpoints of step " << whole << " differ";
}

TEST_F(Resume, IsBitwiseTheRunThatNeverStopped) {
  for (int ranks : {1, 2})
    for (int64_t micro : {8 / ranks, 4 / ranks}) {  // accumulation 1 and 2
      SCOPED_TRACE(fmt::format("{} ranks, micro-batch {}", ranks, micro));
      std::string name = fmt::format("{}-{}", ranks, micro);
      Job straight = config("straight" + name), resumed = config("resumed" + name);
      straight.step().micro_batch = resumed.step().micro_batch = micro;
      EXPECT_EQ(run(straight, ranks), Exit::ok);
      start(resumed, "straight" + name);
      resumed.train.resume = "auto";
      EXPECT_EQ(run(resumed, ranks), Exit::ok);
      expect_bitwise_same(straight, resumed);
      EXPECT_NE(tensors(straight, half), tensors(straight));
    }
}

// One token a step has so large a gradient that the first loss scale of fp16 overflows.
TEST_F(Resume, GoesOnWithTheLossScaleAndWithoutTheSkippedSteps) {
  auto scaled = [&](const std::string& name) {
    Job c = config(name);
    c.step().dtype = f16;
    c.model.context = c.step().micro_batch = c.step().global_batch = 1;
    return c;
  };
  Job straight = scaled("straight"), resumed = scaled("resumed");
  EXPECT_EQ(run(straight), Exit::ok);
  auto records = metrics(straight);
  int skipped = 0;
  for (size_t i = 0; i < size_t(half); ++i) skipped += records[i]["skipped"] == true;
  EXPECT_GE(skipped, 2);
  EXPECT_LT(records[half - 1]["loss_scale"], records[0]["loss_scale"]);
  start(resumed, "straight");
  resumed.train.resume = "auto";
  EXPECT_EQ(run(resumed), Exit::ok);
  expect_bitwise_same(straight, resumed);
}

// Any mesh reads what any other has saved: moments, odd vocabularies and slices that cut anywhere.
// And with recomputation, which a resumed run may choose anew.
TEST_F(Resume, FromAnyMeshOnAnyOther) {
  const Layout layouts[] = {{.dp = 1},
                            {.dp = 2, .zero = 1},
                            {.dp = 4, .zero = 3},
                            {.dp = 1, .pp = 2, .tp = 2, .sequence_parallel = true},
                            {.dp = 2, .pp = 2, .tp = 2, .zero = 2, .schedule = "zb-h1"},
                            {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 3}};
  auto with = [&](const std::string& name, const Layout& layout) {
    Job c = config(name);
    c.model.vocab = 17;  // more than the characters, and nothing divides it
    c.set(layout);
    return c;
  };
  Job one = with("0", layouts[0]);
  run(one, 1);
  auto expected = metrics(one);
  int number = 0;
  for (size_t from = 0; from < std::size(layouts); ++from) {
    std::string saved = fmt::format("{}", from);
    if (from > 0) run(with(saved, layouts[from]), layouts[from].ranks());
    for (size_t to : {size_t(0), from, (from + 2) % std::size(layouts)}) {
      SCOPED_TRACE(fmt::format("from mesh {} on mesh {}", from, to));
      Job c = with(fmt::format("resumed{}", ++number), layouts[to]);
      start(c, saved);
      c.train.resume = "auto";
      if (to != from) c.step().recompute = parallel::Recompute::block;
      run(c, layouts[to].ranks());
      auto got = metrics(c);
      ASSERT_EQ(got.size(), size_t(whole));
      for (size_t i = 0; i < size_t(whole); ++i) {
        double loss = expected[i]["loss"], norm = expected[i]["grad_norm"];
        EXPECT_NEAR(got[i]["loss"], loss, 1e-6 * loss) << "step " << i + 1;
        EXPECT_NEAR(got[i]["grad_norm"], norm, 5e-5 * norm) << "step " << i + 1;
        EXPECT_EQ(got[i]["lr"], expected[i]["lr"]);
      }
      if (to == from) {
        EXPECT_TRUE(metrics(with(saved, layouts[from])) == got) << "not bitwise";
      }
    }
  }
}

// Validation, saving, and a reader that samples from the run while it rests.
TEST_F(Resume, LookingAtARunDoesNotChangeIt) {
  Job busy = config("busy"), quiet = config("quiet"), sampled = config("sampled");
  busy.train.val_every = 1;
  busy.train.save_every = 1;
  busy.train.keep = whole;
  quiet.train.val_every = quiet.train.save_every = 0;
  run(busy, 2);
  run(quiet, 2);
  auto a = metrics(busy), b = metrics(quiet);
  for (auto* records : {&a, &b})
    for (auto& record : *records) record.erase("val_loss");
  EXPECT_EQ(a, b);
  EXPECT_TRUE(tensors(busy) == tensors(quiet));

  start(sampled, "busy");
  auto before = names_in(sampled.train.out);
  {
    Quiet silence;
    parallel::run_worlds(1, [&](parallel::World& world) {
      text::sample({.checkpoint = sampled.train.out, .prompt = "abc", .tokens = 20}, model_of,
                   world);
    });
  }
  EXPECT_EQ(names_in(sampled.train.out), before);
  sampled.train.resume = "auto";
  run(sampled, 2);
  EXPECT_TRUE(tensors(sampled) == tensors(busy));
}

// What a refused run must not do: touch the run that it was refused for.
TEST_F(Resume, RefusesAnotherRunsCheckpointAndLeavesItAlone) {
  Job straight = config("straight");
  run(straight);
  write_bytes(directory_ / "longer.txt", read_bytes(text_) + "abc");
  write_bytes(directory_ / "wider.txt", read_bytes(text_) + "xyz");
  std::string upper = read_bytes(text_);  // whose tokens are the same
  for (char& c : upper) c = char(std::toupper(c));
  write_bytes(directory_ / "upper.txt", upper);
  struct Case {
    std::function<void(Job&)> change;
    const char* words;
  };
  const Case cases[] = {
      {[](auto& c) { c.step().seed = 2; }, "was trained with seed 1; this run asks for 2"},
      {[](auto& c) { c.model.width = 32; }, "was trained with width 16; this run asks for 32"},
      {[](auto& c) { c.model.layers = 1; }, "was trained with layers 2; this run asks for 1"},
      {[](auto& c) { c.step().global_batch = 4, c.model.layers = 1; }, "trained with layers 2"},
      {[](auto& c) { c.model.heads = 1; }, "was trained with heads 2; this run asks for 1"},
      {[](auto& c) { c.model.context = 4; }, "was trained with context 8; this run asks for 4"},
      {[](auto& c) { c.step().global_batch = 4; },
       "was trained with global-batch 8; this run asks for 4"},
      {[](auto& c) { c.text.val_fraction = 0.2; },
       "was trained with val-fraction 0.1; this run asks for 0.2"},
      {[&](auto& c) { c.text.data = directory_ / "longer.txt"; }, "was trained with other "},
      {[&](auto& c) { c.text.data = directory_ / "wider.txt"; }, "was trained with "},
      {[&](auto& c) { c.text.data = directory_ / "upper.txt"; }, "was trained with other "}};
  std::vector<std::string> bytes;
  const std::string files[] = {"config.toml", "tokenizer.json", "metrics.jsonl"};
  for (auto& file : files) bytes.push_back(read_bytes(straight.train.out + "/" + file));
  auto before = names_in(straight.train.out);
  for (auto& [change, words] : cases) {
    SCOPED_TRACE(words);
    Job other = straight;
    other.train.resume = "auto";
    change(other);
    expect_config_error([&] { run(other, 2); }, {words});
    EXPECT_EQ(names_in(straight.train.out), before);
    for (size_t i = 0; i < bytes.size(); ++i)
      EXPECT_EQ(read_bytes(straight.train.out + "/" + files[i]), bytes[i]) << files[i];
  }
}

TEST_F(Resume, KeepPrunesAllButTheNewest) {
  Job c = config("run");
  c.train.save_every = 2;
  c.train.keep = 3;
  run(c, 2);
  for (int64_t step = 2; step <= whole; step += 2)
    EXPECT_EQ(fs::exists(fmt::format("{}/step-{}", c.train.out, step)), step > whole - 6) << step;
}

TEST_F(Resume, NothingToResumeFrom) {
  Job c = config("run");
  c.train.resume = "last-good";
  expect_error([&] { run(c); }, {"checkpoint: there is none in " + c.train.out}, Exit::not_found);
  c.train.resume = c.train.out + "/step-3";
  expect_error([&] { run(c); }, {c.train.resume}, Exit::not_found);
  c.train.resume = "auto";  // starts afresh
  EXPECT_EQ(run(c), Exit::ok);
  EXPECT_EQ(run(c), Exit::ok);  // is finished: nothing is left to do
  EXPECT_EQ(metrics(c).size(), size_t(whole));
}

TEST_F(Resume, AFreshStartDoesNotMixWithAnOldRun) {
  Job c = config("run");
  EXPECT_EQ(run(c), Exit::ok);
  auto before = metrics(c);
  expect_config_error([&] { run(c); }, {"holds step-"});
  c.train.resume = c.train.out + "/step-6";  // goes back behind the newest
  expect_config_error([&] { run(c); }, {"go on after step 6"});
  EXPECT_EQ(metrics(c), before);
}

}  // namespace triax::minigpt::resume_test
