// Ranks that were told different things are refused before they train.
#include "triax/parallel/train/runs/agreement.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/parallel/comm/threads/thread_comm.h"

namespace triax::parallel::agreement_test {

using namespace test;
using Told = std::map<std::string, std::string>;

const Told same{{"lr", "0.1"}, {"build", "4f2a"}, {"samples", "abc"}, {"note", ""}};

TEST(AgreementTest, RanksThatWereToldTheSameGoOn) {
  for (int ranks : {1, 2, 4})
    run_ranks(ranks, [](Communicator& world) {
      check_agreement(world, same);
      check_agreement(world, {});
    });
}

/// Rank `odd` of three is told something else: every rank throws, with these words.
void expect_refused(int odd, const Told& other, const std::string& first, const std::string& mine) {
  run_ranks(3, [&](Communicator& world) {
    // Rank 0 is what others are compared with: if it is odd, rank 1 is named.
    int named = odd == 0 ? 1 : odd;
    expect_config_error([&] { check_agreement(world, world.rank() == odd ? other : same); },
                        {"ranks disagree about the run\n  rank 0: " + (odd == 0 ? mine : first) +
                         "\n  rank " + std::to_string(named) + ": " + (odd == 0 ? first : mine) +
                         "\n  Start every rank with the same program"});
    check_agreement(world, same);  // ranks may go on
  });
}

TEST(AgreementTest, TheFirstLineThatDiffersIsNamed) {
  for (int odd : {0, 1, 2}) {
    SCOPED_TRACE(testing::Message() << "rank " << odd);
    Told build = same, both = same, missing = same, more = same;
    build["build"] = "77ff";  // another build of the program
    both["lr"] = "0.2", both["samples"] = "xyz";
    missing.erase("samples");
    more["z"] = "1";
    expect_refused(odd, build, "build = 4f2a", "build = 77ff");
    expect_refused(odd, both, "lr = 0.1", "lr = 0.2");
    expect_refused(odd, missing, "samples = abc", "(nothing)");
    expect_refused(odd, more, "(nothing)", "z = 1");
  }
}

TEST(AgreementTest, TheLowestRankThatDiffersIsNamed) {
  run_ranks(4, [](Communicator& world) {
    Told mine = same;
    if (world.rank() >= 2) mine["lr"] = std::to_string(world.rank());
    expect_config_error([&] { check_agreement(world, mine); },
                        {"rank 0: lr = 0.1", "rank 2: lr = 2"});
  });
}

// Linkers can leave it out; the one of these tests does not.
TEST(AgreementTest, ABuildHasAnIdOfItsOwn) {
  std::string id = build_id();
  EXPECT_EQ(id, build_id());
  EXPECT_GE(id.size(), 16u) << id;
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
}

// Ranks that were told different things, or see other data, may not train on in silence.

struct OneLayer : nn::Sequence {
  explicit OneLayer(const TensorParallel& tp) { add<ClassHead>("head", 4, 16, tp); }
};

TEST(Guards, RanksThatWereToldDifferentThings) {
  auto dp = tiny_options({.dp = 2});
  auto seed = [](auto& o, int rank) { o.step.seed = 1 + rank; };
  EXPECT_TRUE(refused(outcome(task_of(), dp, seed), "rank 0: seed = 1", "rank 1: seed = 2"));
  auto micro = [](auto& o, int rank) { o.step.micro_batch = rank ? 4 : 8; };
  EXPECT_TRUE(refused(outcome(task_of(), dp, micro), "micro-batch = 8", "micro-batch = 4"));
  auto dtype = [](auto& o, int rank) { o.step.dtype = rank ? bf16 : f32; };
  EXPECT_TRUE(refused(outcome(task_of(), dp, dtype), "\"fp32\"", "rank 1: precision = \"bf16\""));
}

/// Every rank brings a task of its own.
std::string outcome_of_tasks(const std::function<Task(int rank)>& task) {
  try {
    run_worlds(2, [&](World& world) {
      Task mine = task(world.rank());
      Trainer trainer(mine, tiny_options({.dp = 2}), world);
      trainer.step();
    });
    return "";
  } catch (const Error& e) {
    return fmt::format("{}: {}", int(e.code()), e.what());
  }
}

TEST(Guards, RanksWithOtherModelsOrData) {
  EXPECT_TRUE(
      refused(outcome_of_tasks([](int rank) { return rank ? task_of<OneLayer>() : task_of(); }),
              "ranks disagree", "rank 1: "));
  auto other_samples = [](int rank) {
    Task task = task_of();
    if (rank == 1) task.samples = noise(256, 9);
    return task;
  };
  EXPECT_TRUE(refused(outcome_of_tasks(other_samples), "samples = " + noise()->identity(),
                      noise(256, 9)->identity()));
  auto other_held_out = [](int rank) {
    Task task = task_of();
    if (rank == 1) task.held_out = nullptr;
    return task;
  };
  EXPECT_TRUE(refused(outcome_of_tasks(other_held_out), "held-out samples = input [50, 16]",
                      "held-out samples = none"));
}

/// noise() under the name it has, with what `change` makes of its batches and weights.
struct Changed : nn::Samples {
  std::function<nn::Batch(std::span<const int64_t>)> make = [](auto indices) {
    return noise(256)->batch(indices);
  };
  double each = 1;
  int64_t count() const override { return 256; }
  nn::Batch batch(std::span<const int64_t> indices) const override { return make(indices); }
  double weight(int64_t) const override { return each; }
  std::string identity() const override { return "noise"; }
};

TEST(Guards, RanksThatSeeOtherDataUnderOneName) {
  auto of = [](int rank, bool weights) {
    Task task = task_of();
    auto mine = std::make_shared<Changed>();
    if (weights) mine->each = 1 + rank;
    else mine->make = [rank](auto i) { return noise(256, uint64_t(rank))->batch(i); };
    task.samples = mine;
    return task;
  };
  auto of_ranks = [&](bool weights) {
    return outcome_of_tasks([&, weights](int rank) { return of(rank, weights); });
  };
  EXPECT_TRUE(refused(of_ranks(true), "ranks disagree", "values of the first batch = "));
  EXPECT_TRUE(refused(of_ranks(false), "ranks disagree", "training samples: first = "));
}

TEST(Guards, BatchesThatAreNoFunctionOfTheirIndices) {
  auto calls = std::make_shared<std::atomic<uint64_t>>(0);
  auto augmented = std::make_shared<Changed>();
  augmented->make = [calls](auto i) { return noise(256, ++*calls)->batch(i); };
  Task task = task_of();
  task.samples = augmented;
  EXPECT_TRUE(refused(outcome(task, tiny_options()), "asked twice for samples 0 to 7",
                      "batch() must be a function of the indices alone"));
}

TEST(Guards, AugmentationThatIsNoFunctionOfIndicesAndSerialNumbers) {
  struct Drawn : Changed {
    nn::Batch augmented(std::span<const int64_t> indices, int64_t) const override {
      return noise(256, ++calls)->batch(indices);
    }
    mutable std::atomic<uint64_t> calls = 0;
  };
  Task task = task_of();
  task.samples = std::make_shared<Drawn>();
  EXPECT_TRUE(refused(outcome(task, tiny_options()), "asked twice for samples 0 to 7",
                      "augmented() of the indices and the serial numbers"));
}

TEST(Guards, BlanksThatCount) {
  auto no_blanks = std::make_shared<Changed>();
  no_blanks->make = [](auto indices) {
    std::vector<int64_t> known;
    for (int64_t i : indices) known.push_back(std::max<int64_t>(i, 0));
    return noise(256)->batch(known);
  };
  auto o = tiny_options({.dp = 2});
  Task task = task_of();
  task.held_out = no_blanks;
  auto no_step = [](Trainer& t) {
    t.on({.step = [](auto&, auto&) { FAIL() << "a step was taken"; }}, On::all);
  };
  expect_config_error([&] { train(task, o, no_step); },
                      {"a batch of blanks (index -1)", "expected 0"});
}

/// A line through points; its bias is zero at the start.
struct Regression : nn::Module {
  explicit Regression(const TensorParallel& tp)
      : line(child<nn::Linear>("line", 16, 1, nn::LinearOptions{.std = 0.3, .shard = tp.whole()})) {
  }
  Tensor operator()(const Tensor& x, const nn::Batch& b) const {
    if (!b.target.defined()) return line(x);
    Tensor off = line(x) - b.target;
    return sum(off * off);
  }
  nn::Linear& line;
};
struct RegressionNet : nn::Sequence {
  explicit RegressionNet(const TensorParallel& tp) { add<Regression>("line", tp); }
};

/// Random features, of which the first plus 1 is the target. Blanks are zeros, as is their target.
struct Points : nn::Samples {
  explicit Points(int64_t n) : points(n) {}
  int64_t count() const override { return points; }
  nn::Batch batch(std::span<const int64_t> indices) const override {
    std::vector<float> x, y;
    for (int64_t i : indices) {
      for (uint64_t k = 0; k < 16; ++k)
        x.push_back(i < 0 ? 0 : float(random::uniform(1, uint64_t(i), k)));
      y.push_back(i < 0 ? 0 : x[x.size() - 16] + 1);
    }
    auto n = std::ssize(indices);
    return {.input = from_host(x, {n, 16}, cpu), .target = from_host(y, {n, 1}, cpu)};
  }
  std::string identity() const override { return std::to_string(points); }
  int64_t points;
};

// Such blanks have no loss until the bias is trained.
TEST(Guards, BlanksThatCountWithTrainedWeightsAlone) {
  auto o = tiny_options();
  o.step.micro_batch = o.step.global_batch = 8, o.steps = 2;
  auto hold_out = [&](int64_t held_out) {
    Task task = task_of<RegressionNet>();
    task.samples = std::make_shared<Points>(64);
    task.held_out = std::make_shared<Points>(held_out);
    train(task, o);
  };
  hold_out(16);  // no blank is needed
  expect_config_error([&] { hold_out(13); }, {"a batch of blanks (index -1)", "expected 0"});
}

}  // namespace triax::parallel::agreement_test
