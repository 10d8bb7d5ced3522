// Recomputation in the GPT: the same bits as without on every mesh, what it keeps by the memory
// counter, and what it sends again by the ledger, against the closed forms. correctness 19, 28.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "examples/minigpt/feed.h"
#include "examples/minigpt/precision.h"
#include "examples/minigpt/replica.h"
#include "examples/minigpt/trace.h"
#include "parallel/comm/threads/thread_comm.h"
#include "tests/support/tensors.h"

namespace triax::minigpt {
namespace {

std::string some_text() {
  std::string text;
  for (int i = 0; i < 600; ++i) text += char('a' + (i * i / 3 + i * 7) % 13);
  return text;
}

TrainConfig small(const MeshConfig& mesh, const std::string& recompute) {
  TrainConfig c{.data = "text", .recompute = recompute};
  c.model = {.layers = 4, .heads = 4, .width = 32, .context = 8, .dropout = 0.1, .vocab = 13};
  c.mesh = mesh;
  c.mesh.chunks = std::max<int64_t>(1, mesh.chunks);
  c.micro_batch = 2;
  c.global_batch = 12;
  c.steps = 2;
  c.warmup = 0;
  return c;
}

TextData text_for(const TrainConfig& c) {
  return {some_text(),
          Tokenizer::from_text(some_text(), "text"),
          {.context = c.model.context, .name = "text"}};
}

/// Every tensor of both traces has the same bits.
void expect_equal(const Trace& a, const Trace& b) {
  auto compare = [](const Wholes& x, const Wholes& y, const char* what) {
    ASSERT_EQ(x.size(), y.size()) << what;
    for (auto& [name, whole] : x) {
      EXPECT_EQ(whole.conflict, "") << what << ' ' << name;
      EXPECT_EQ(whole.missing(), 0) << what << ' ' << name;
      EXPECT_EQ(whole.values, y.at(name).values) << what << ' ' << name;
    }
  };
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    SCOPED_TRACE(fmt::format("step {}", i + 1));
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].norms, b.steps[i].norms);
    compare(a.steps[i].activations, b.steps[i].activations, "activation");
    compare(a.steps[i].gradients, b.steps[i].gradients, "gradient");
    compare(a.steps[i].state, b.steps[i].state, "state");
  }
}

TEST(Recompute, ChangesNoBit) {
  for (const char* precision : {"fp32", "bf16", "fp16"})
    for (MeshConfig mesh :
         {MeshConfig{.dp = 1},
          {.dp = 2, .pp = 2, .zero = 2, .schedule = "zb-h1"},
          {.dp = 2, .tp = 2, .zero = 3},
          {.dp = 1, .pp = 2, .tp = 2, .schedule = "zb-interleaved", .chunks = 2},
          {.dp = 2, .pp = 2, .tp = 2, .sequence_parallel = true, .zero = 3, .schedule = "zb-h1"}}) {
      auto run = [&, c = small(mesh, "off")](const char* recompute) mutable {
        c.recompute = recompute;
        c.precision = precision;
        validate(c, mesh.dp * mesh.pp * mesh.tp);
        return trace(c, text_for(c));
      };
      Trace off = run("off");
      for (const char* recompute : {"selective", "block", "block-split"}) {
        if (recompute_of(recompute) == Recompute::block_split &&
            (mesh.tp == 1 || mesh.sequence_parallel))
          continue;
        SCOPED_TRACE(fmt::format("{}, {}: dp {} pp {} tp {} zero {} {}", precision, recompute,
                                 mesh.dp, mesh.pp, mesh.tp, mesh.zero, mesh.schedule));
        expect_equal(off, run(recompute));
        EXPECT_EQ(autograd::live_nodes(), 0);
      }
    }
}

TEST(Recompute, ObserversSeeEachActivationOnce) {
  for (const char* recompute : {"off", "selective", "block"}) {
    TrainConfig c = small({.dp = 1}, recompute);
    TextData text = text_for(c);
    parallel::run_ranks(1, [&](parallel::Communicator& world) {
      parallel::Mesh mesh(world, {});
      std::map<std::string, int> seen;
      Replica replica(c, mesh, [&](auto& layer, auto&, auto&) { ++seen[layer]; });
      Feed feed(c, text, mesh.dp());
      replica.step([&](int64_t micro) { return feed.at(1, micro); }, 1);
      EXPECT_EQ(seen.size(), 6);
      for (auto& [layer, times] : seen) EXPECT_EQ(times, c.accumulation()) << layer;
    });
  }
}

// -- Memory

struct Cut {
  int tp;
  bool sequence;
};

/// The share of a tensor's rows that a rank has outside the split stretches.
double own(const Cut& cut) { return cut.sequence ? 1.0 / cut.tp : 1; }
double rows(const TrainConfig& c) { return double(c.micro_batch * c.model.context); }
/// Bytes of all rows of an activation.
double whole(const TrainConfig& c) {
  return rows(c) * double(c.model.width) * double(size_of(dtype_of(c.precision)));
}
double statistics(const TrainConfig& c, const Cut& cut) {
  return rows(c) * (16 * own(cut) + 4 * double(c.model.heads) / cut.tp);
}

/// Bytes that a block keeps of one micro-batch, as examples/minigpt/model.h says.
double kept(const TrainConfig& c, const Cut& cut) {
  double t = cut.tp;
  switch (recompute_of(c.recompute)) {
    case Recompute::off:
      return whole(c) * (4 * own(cut) + 12 / t) + statistics(c, cut);
    case Recompute::selective:
      return whole(c) * (4 * own(cut) + 7 / t) + statistics(c, cut);
    case Recompute::block:
      return whole(c) * own(cut);
    case Recompute::block_split:
      return whole(c) / t;
  }
  return 0;
}

/// Bytes beside what all blocks have kept when backward is at the last block's MLP, its peak: the
/// gradients of the block's output (also gathered, with sequence parallel) and before or after
/// GELU; and what is made again.
double working(const TrainConfig& c, const Cut& cut) {
  double t = cut.tp, gradients = own(cut) + (cut.sequence ? 1 : 0) + 4 / t;
  TrainConfig off = c;
  off.recompute = "off";
  switch (recompute_of(c.recompute)) {
    case Recompute::off:
      return whole(c) * gradients;
    case Recompute::selective:
      return whole(c) * (gradients + 4 / t);
    case Recompute::block:
      return whole(c) * (gradients - own(cut)) + kept(off, cut);
    case Recompute::block_split:
      return whole(c) * gradients + kept(off, cut);
  }
  return 0;
}

TrainConfig wide(int64_t layers, const std::string& precision, const std::string& recompute) {
  TrainConfig c = small({.dp = 1}, recompute);
  c.model = {.layers = layers, .heads = 4, .width = 64, .context = 32, .vocab = 13};
  c.global_batch = c.micro_batch;
  c.precision = precision;
  return c;
}

/// Activations that all blocks but the first have kept when forward is done, where one stage has
/// them all, and the peak of activations in the whole of forward and backward, on the last rank.
struct Held {
  double blocks = 0, peak = 0;
};
Held measure(TrainConfig c, const Cut& cut) {
  Held held;
  TextData text = text_for(c);
  c.mesh.tp = cut.tp;
  c.mesh.sequence_parallel = cut.sequence;
  parallel::run_ranks(int(c.mesh.pp) * cut.tp, [&](parallel::Communicator& world) {
    parallel::Mesh mesh(world, {.pp = int(c.mesh.pp), .tp = cut.tp});
    std::vector<int64_t> after;  // each layer: its input and output are there too
    Replica replica(c, mesh, [&](auto&, auto&, auto&) {
      after.push_back(memory::counter()->live(memory::activations));
    });
    Feed feed(c, text, mesh.dp());
    memory::counter()->reset_peaks();
    replica.step([&](int64_t micro) { return feed.at(1, micro); }, 1);
    if (world.rank() < world.size() - 1) return;
    if (c.mesh.pp == 1) held.blocks = double(after[size_t(c.model.layers)] - after[1]);
    held.peak = double(memory::counter()->peak(memory::activations));
  });
  return held;
}

TEST(Recompute, KeepsWhatTheFormulaSays) {
  for (const char* precision : {"fp32", "bf16"})
    for (auto& cut : {Cut{1, false}, {2, false}, {2, true}, {4, true}})
      for (const char* recompute : {"off", "selective", "block", "block-split"}) {
        if (recompute_of(recompute) == Recompute::block_split && (cut.tp == 1 || cut.sequence))
          continue;
        SCOPED_TRACE(fmt::format("{} {}, tp {}{}", precision, recompute, cut.tp,
                                 cut.sequence ? " sequence" : ""));
        TrainConfig few = wide(3, precision, recompute), many = wide(7, precision, recompute);
        Held low = measure(few, cut), high = measure(many, cut);
        double block = kept(few, cut);
        EXPECT_EQ(low.blocks, 2 * block);
        EXPECT_EQ(high.blocks, 6 * block);
        EXPECT_NEAR(high.peak - low.peak, 4 * block, 0.05 * 4 * block);
        for (auto& [held, c] : {std::pair{low, few}, {high, many}}) {
          double peak = double(c.model.layers) * block + working(c, cut);
          EXPECT_NEAR(held.peak, peak, 0.05 * peak);
        }
      }
}

// All micro-batches are live at once, on the last stage with what it has received.
TEST(Recompute, KeepsLessOfEveryLiveMicroBatch) {
  for (int stages : {1, 2}) {
    Cut cut{stages, false};
    auto each = [&](TrainConfig c) {  // bytes a micro-batch
      c.mesh.pp = stages;
      c.mesh.schedule = "gpipe";
      auto peak = [&](int64_t micros) {
        c.global_batch = micros * c.micro_batch;
        return measure(c, cut).peak;
      };
      return (peak(6) - peak(2)) / 4;
    };
    TrainConfig off = wide(4, "fp32", "off");
    double all = each(off);
    for (const char* recompute : {"selective", "block", "block-split"}) {
      if (recompute_of(recompute) == Recompute::block_split && cut.tp == 1) continue;
      TrainConfig c = wide(4, "fp32", recompute);
      double saved = 4. / stages * (kept(off, cut) - kept(c, cut));
      EXPECT_NEAR(all - each(c), saved, 0.02 * saved) << recompute << ", stages " << stages;
    }
  }
}

// Inputs of the two norms and four products, 2 and 7 units, and gradients of their results, 2 and
// 9; whatever was kept or made again in the first half. x is there already.
TEST(Recompute, SplitBackwardHoldsWhatWeightGradientsNeed) {
  for (const char* recompute : {"off", "selective", "block"}) {
    TrainConfig c = wide(1, "fp32", recompute);
    c.model.dropout = 0.1;
    auto alone = parallel::single_rank();
    Gpt model(c.model, parallel::TensorParallel(*alone));
    model.materialize(cpu, f32, 1);
    nn::Layer block = model.layers(recompute_of(recompute))[1];
    nn::Batch batch{.time = c.model.context};
    Tensor x = test::filled({int64_t(rows(c)), c.model.width}, 1, f32);
    require_grad(x);
    auto live = [] { return memory::counter()->live(); };
    int64_t before = live();
    Tensor y = without_values(block.run(x, batch));
    autograd::Later later;
    backward(y, full(y.shape(), 1, f32, cpu), &later);
    grad(x) = {};
    EXPECT_EQ(double(live() - before), 19 * whole(c) + 16 * rows(c)) << recompute;
    later.run();
  }
}

// -- Volume

/// Bytes that rank 0 has sent in its groups dp and tp in one step.
std::pair<double, double> sent(const TrainConfig& c) {
  std::pair<double, double> bytes;
  TextData text = text_for(c);
  const MeshConfig& m = c.mesh;
  parallel::run_ranks(int(m.dp * m.pp * m.tp), [&](parallel::Communicator& world) {
    parallel::Mesh mesh(world, {.dp = int(m.dp), .pp = int(m.pp), .tp = int(m.tp)});
    Replica replica(c, mesh);
    Feed feed(c, text, mesh.dp());
    mesh.dp().reset_ledger();
    mesh.tp().reset_ledger();
    replica.step([&](int64_t micro) { return feed.at(1, micro); }, 1);
    if (world.rank() == 0)
      bytes = {mesh.dp().ledger().total().bytes, mesh.tp().ledger().total().bytes};
  });
  return bytes;
}

// A block's two collectives in forward come again, over tp; its weights are gathered in backward
// anyway.
TEST(Recompute, SendsTheForwardOfTensorParallelAgain) {
  for (const MeshConfig& mesh : {MeshConfig{.dp = 2, .tp = 2, .zero = 3},
                                 {.dp = 1, .tp = 4},
                                 {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 3}}) {
    TrainConfig c = small(mesh, "off");
    double t = double(mesh.tp), rows = double(c.micro_batch * c.model.context);
    double unit = 4 * (t - 1) / t * rows * double(c.model.width);  // of an all-gather, bytes
    double blocks = double(c.model.layers * c.accumulation()) * unit;
    auto [dp_off, tp_off] = sent(c);
    for (auto& [recompute, again] :
         {std::pair{"selective", 0.}, {"block", 4.}, {"block-split", 5.}}) {
      c.recompute = recompute;
      if (mesh.sequence_parallel && recompute_of(recompute) == Recompute::block_split) continue;
      auto [dp, tp] = sent(c);
      EXPECT_EQ(dp, dp_off) << recompute;
      EXPECT_NEAR(tp - tp_off, again * blocks, 1e-6) << recompute;
    }
  }
}

}  // namespace
}  // namespace triax::minigpt
