// Any mesh trains the same GPT: loss, gradient norm, every activation, gradient, weight and moment
// of every step equal those of one rank, with dropout; replicas are equal bit for bit.
// correctness: the one big test, and 1-10, 16-18, 21-25, 29, 42.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/optim/adamw.h"
#include "triax/parallel/data/data_parallel.h"
#include "triax/parallel/pipeline/schedule.h"

namespace triax::minigpt::parity_test {

using parallel::Recompute;
using parallel::Trace;
using parallel::TraceStep;
using parallel::Wholes;
using test::values;

std::string other_text() {
  std::string text;
  for (int i = 0; i < 600; ++i) text += char('a' + (i * i / 3 + i / 5) % 13);
  return text;
}

Job small() {
  Job c;
  c.model = {.layers = 4, .heads = 4, .width = 32, .context = 8, .dropout = 0.1};
  c.step().micro_batch = 2;
  c.step().global_batch = 12;
  c.train.steps = 3;
  c.train.lr.warmup = 0;
  return c;
}

/// The one rank that a mesh is compared with, made once for a whole set of meshes.
class Parity : public testing::Test {
 protected:
  void start(const Job& c) {
    task_ = task_of(c, other_text());
    base_ = c;
    reference_ = trace(task_, reference_of(c.train));
    ASSERT_EQ(autograd::live_nodes(), 0);
  }
  void expect_equal(const Layout& layout, int64_t micro_batch = 2) {
    Job c = base_;
    c.set(layout);
    c.step().micro_batch = micro_batch;
    c.step().recompute = recompute_;
    c.step().offload = offload_;
    if (layout.zero < 3) c.step().offload = std::min(offload_, parallel::Offloaded::optimizer);
    SCOPED_TRACE(fmt::format("{}, micro-batch {}, recompute {}, {}, offload {}", describe(layout),
                             micro_batch, int(recompute_), c.step().dtype, int(c.step().offload)));
    if (c.step().dtype != f32) expect_alike(c);
    else if (auto d = compare_with_reference(task_, c.train, reference_))
      ADD_FAILURE() << "step " << d->step << ": " << d->what << " of " << d->name << ": "
                    << d->how_much << " (" << d->guess << ")";
    EXPECT_EQ(autograd::live_nodes(), 0);
  }

  /// In low precision: loss, norm and gradients as one rank's within rounding of single
  /// activations; replicas still have the same bits.
  void expect_alike(const Job& c) {
    double bound = c.step().dtype == bf16 ? 2e-3 : 3e-4;
    Trace run = trace(task_, c.train);
    for (size_t s = 0; s < run.steps.size(); ++s) {
      const TraceStep &right = reference_.steps[s], &step = run.steps[s];
      ASSERT_EQ(step.skipped, right.skipped) << "step " << s + 1;
      EXPECT_NEAR(step.loss, right.loss, bound * right.loss) << "step " << s + 1;
      for (double norm : step.norms) {
        EXPECT_NEAR(norm, right.norms[0], 20 * bound * right.norms[0]) << "step " << s + 1;
        EXPECT_EQ(norm, step.norms[0]);
      }
      expect_whole(step.activations, right.activations);
      expect_whole(step.state, right.state);
      expect_whole(step.gradients, right.gradients);
      EXPECT_LE(apart(right.gradients, step.gradients), 40 * bound) << "step " << s + 1;
    }
  }
  /// |other - right| / |right| of everything together.
  static double apart(const Wholes& right, const Wholes& other) {
    double square = 0, gap = 0;
    for (auto& [name, whole] : right)
      for (size_t i = 0; i < whole.values.size(); ++i) {
        double v = whole.values[i], d = other.at(name).values[i] - v;
        square += v * v;
        gap += d * d;
      }
    return std::sqrt(gap / square);
  }
  /// All there, and the same bits on all ranks that hold it.
  static void expect_whole(const Wholes& all, const Wholes& right) {
    ASSERT_EQ(all.size(), right.size());
    for (auto& [name, whole] : all) {
      ASSERT_TRUE(right.contains(name)) << name;
      ASSERT_EQ(whole.values.size(), right.at(name).values.size()) << name;
      EXPECT_EQ(whole.missing(), 0) << name;
      EXPECT_EQ(whole.conflict, "") << name;
    }
  }

  parallel::Task task_;
  Recompute recompute_ = Recompute::off;  ///< of the meshes, never of the one rank
  parallel::Offloaded offload_ =
      parallel::Offloaded::nothing;  ///< likewise; parameters only with ZeRO-3
  Job base_;
  Trace reference_;
};

TEST_F(Parity, AnyCutOfTheBatch) {
  start(small());
  for (auto [dp, micro] : std::vector<std::pair<int, int64_t>>{
           {1, 12}, {1, 1}, {2, 6}, {2, 3}, {2, 1}, {3, 2}, {4, 3}, {4, 1}, {6, 2}})
    expect_equal({.dp = dp}, micro);
}

TEST_F(Parity, AnyMeshWithAnyZero) {
  start(small());
  for (std::string mesh : {"211", "311", "121", "141", "112", "114", "221", "212", "122", "222"}) {
    int dp = mesh[0] - '0', pp = mesh[1] - '0', tp = mesh[2] - '0';
    for (int zero : {0, 1, 2, 3})
      expect_equal({.dp = dp,
                    .pp = pp,
                    .tp = tp,
                    .sequence_parallel = zero % 2 == 1,
                    .zero = zero,
                    .schedule = pp > 1 && zero >= 2 ? "zb-h1" : "1f1b"});
  }
}

TEST_F(Parity, AnySchedule) {
  start(small());
  for (auto& schedule : parallel::schedule_names())
    for (int pp : {1, 2})
      for (int zero : {0, 1, 2, 3}) {
        expect_equal({.dp = 2, .pp = pp, .zero = zero, .schedule = schedule}, 1);
        expect_equal(
            {.pp = pp, .tp = 2, .sequence_parallel = true, .zero = zero, .schedule = schedule});
      }
}

TEST_F(Parity, AnyPlacement) {
  start(small());
  for (auto* placement : {"1,3", "4,0", "0,4"})
    for (int zero : {0, 3}) expect_equal({.dp = 2, .pp = 2, .zero = zero, .placement = placement});
  for (auto* schedule : {"interleaved", "zb-v"})
    expect_equal({.pp = 2, .schedule = schedule, .chunks = 2, .placement = "0,2,0,2"});
}

TEST_F(Parity, AnyRecomputation) {
  start(small());
  for (auto recompute : {Recompute::selective, Recompute::block, Recompute::block_split}) {
    recompute_ = recompute;
    bool split = recompute_ == Recompute::block_split;
    expect_equal({.dp = 2, .pp = 2, .tp = 2, .zero = 3, .schedule = "zb-h1"});
    expect_equal({.dp = 3, .tp = 2, .sequence_parallel = !split, .zero = 2});
    expect_equal({.pp = 2, .tp = split ? 2 : 1, .zero = 1, .schedule = "interleaved"});
    expect_equal({.pp = 2, .tp = 4, .sequence_parallel = !split, .schedule = "zb-interleaved"});
    expect_equal({.dp = 2, .pp = 2, .tp = split ? 2 : 1, .zero = 2, .schedule = "zb-v"});
  }
}

// Parameters of sizes that nothing divides, and a vocabulary of 13 on 2, 3 and 6 slices.
TEST_F(Parity, OddSizes) {
  Job c = small();
  c.model.layers = 3;
  c.model.heads = 6;
  c.model.width = 6 * 7;
  c.model.context = 6;
  start(c);
  for (int zero : {0, 1, 2, 3}) {
    expect_equal({.dp = 3, .zero = zero}, 4);
    expect_equal({.dp = 2, .pp = 3, .zero = zero});
    expect_equal({.tp = 6, .sequence_parallel = zero > 0, .zero = zero});
    expect_equal({.dp = 2, .tp = 3, .sequence_parallel = true, .zero = zero});
  }
}

TEST_F(Parity, SmoothedLabels) {
  start(small());
  double plain = reference_.steps[0].loss;
  Job c = small();
  c.text.label_smoothing = 0.3;
  start(c);
  EXPECT_GT(std::abs(reference_.steps[0].loss - plain), 1e-4);
  for (int zero : {0, 3}) expect_equal({.dp = 3, .pp = 2, .zero = zero});
  expect_equal({.pp = 2, .tp = 2, .sequence_parallel = true, .schedule = "zb-h1"});
  expect_equal({.tp = 4});
}

// Of a micro-batch; the reference has several.
TEST_F(Parity, ActivationsOfOneElement) {
  Job c = small();
  c.model = {.layers = 1, .heads = 1, .width = 1, .context = 1};
  start(c);
  expect_equal({.dp = 2}, 1);
}

// correctness 38: all flags at once, drawn by a seed. TRIAX_FUZZ sets how many draws.
TEST_F(Parity, RandomCombinations) {
  const char* wish = std::getenv("TRIAX_FUZZ");
  const int draws = wish ? std::atoi(wish) : 20;
  uint64_t key = random::key(2026, "parity"), at = 0;
  auto draw = [&](std::vector<int> values) {
    return values[random::philox(key, at++, 0).x % values.size()];
  };
  for (int i = 0; i < draws; ++i) {
    Job c = small();
    int tp = draw({1, 1, 2, 3}), pp = draw({1, 2, 3}), dp = draw({1, 2, 3});
    if (dp * pp * tp > 12) dp = 1;
    c.model.heads = tp * draw({1, 2});
    c.model.width = c.model.heads * draw({4, 7, 10});
    c.model.context = draw({6, 12});
    c.model.layers = pp * draw({2, 3});
    c.model.dropout = double(draw({0, 1, 3})) / 10;
    c.model.vocab = draw({0, 14, 19, 32});
    c.step().seed = i;
    c.step().dtype = std::array{f32, f32, bf16, f16}[size_t(draw({0, 1, 2, 3}))];
    int micro = draw({1, 2, 3}), accumulation = draw({1, 2, 3, 5});
    c.step().global_batch = micro * accumulation * dp;
    start(c);
    auto names = parallel::schedule_names();
    std::string name = names[size_t(draw({0, 1, 2, 3, 4, 5, 6, 7}))];
    auto schedule = parallel::schedule_named(name);
    bool sequence = draw({0, 1}) == 1, free = schedule.placement == parallel::Placement::ring;
    recompute_ = Recompute(
        draw(tp > 1 && !sequence ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0, 1, 2}));
    offload_ = parallel::Offloaded(draw({0, 1, 2}));
    int chunks = free && schedule.chunks > 1 ? draw({1, 2}) : schedule.chunks;
    // Sometimes any number of blocks on each stage, none too.
    std::string placement;
    if (draw({0, 1, 2, 3}) == 0) {
      std::vector<int> stages, counts(size_t(pp * chunks));
      for (int v = 0; v < pp * chunks; ++v) stages.push_back(v);
      for (int64_t layer = 0; layer < c.model.layers; ++layer) ++counts[size_t(draw(stages))];
      placement = join(counts, ",");
    }
    expect_equal({.dp = dp,
                  .pp = pp,
                  .tp = tp,
                  .sequence_parallel = sequence,
                  .zero = draw({0, 1, 2, 3}),
                  .schedule = name,
                  .chunks = chunks,
                  .placement = placement},
                 micro);
  }
}

// What parity cannot see is wrong alike everywhere: two steps must draw different masks.
TEST(Dropout, IsAtWorkAndChangesWithTheStep) {
  auto alone = parallel::single_rank();
  ModelConfig m{.layers = 1, .heads = 2, .width = 8, .context = 4, .dropout = 0.5, .vocab = 5};
  Gpt model(m, parallel::TensorParallel(*alone));
  model.materialize(cpu, f32, 1);
  NoGrad guard;
  Tensor ids = zeros({2, 4}, i32, cpu);
  auto at = [&](int64_t first) { return values(model({ids, {}, first})); };
  EXPECT_NE(at(0), at(2));
  EXPECT_EQ(at(2), at(2));
  EXPECT_NE(at(0), at(nn::evaluation));
}

// correctness 35: the second step costs no more memory than the third, and leaves nothing behind.
TEST(Memory, IsConstantFromTheThirdStepOn) {
  parallel::run_ranks(1, [](parallel::Communicator& world) {
    ModelConfig m{.layers = 2, .heads = 2, .width = 16, .context = 8, .dropout = 0.1, .vocab = 13};
    Gpt model(m, parallel::TensorParallel(world));
    parallel::DataParallel data(model, world, {});
    optim::AdamW adam(data.slots(), {});
    int64_t live = 0, peak = 0;
    for (int step = 0; step < 8; ++step) {
      memory::counter()->reset_peaks();
      data.begin();
      Tensor ids = zeros({2, 8}, i32, cpu);
      backward(model({ids, ids, step * 2}));
      data.finish();
      adam.step(1e-3);
      EXPECT_EQ(autograd::live_nodes(), int64_t(model.parameters().size()));  // the leaves
      if (step == 2) live = memory::counter()->live(), peak = memory::counter()->peak();
      if (step < 3) continue;
      EXPECT_EQ(memory::counter()->live(), live);
      EXPECT_EQ(memory::counter()->peak(), peak);
    }
  });
}

}  // namespace triax::minigpt::parity_test
