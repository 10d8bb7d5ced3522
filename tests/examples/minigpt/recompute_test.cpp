// Recomputation in the GPT: the same bits as without on every mesh, what it keeps by the memory
// counter, and what it sends again by the ledger, against the closed forms. correctness 19, 28.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"

namespace triax::minigpt::recompute_test {

using parallel::Recompute;
using parallel::Trace;
using parallel::Wholes;

const std::vector<std::pair<Recompute, const char*>> modes = {
    {Recompute::off, "off"},
    {Recompute::selective, "selective"},
    {Recompute::block, "block"},
    {Recompute::block_split, "block-split"}};

Job small(const Layout& layout, Recompute recompute) {
  Job c;
  c.model = {.layers = 4, .heads = 4, .width = 32, .context = 8, .dropout = 0.1, .vocab = 13};
  c.set(layout);
  c.step().recompute = recompute;
  c.step().micro_batch = 2;
  c.step().global_batch = 12;
  c.train.steps = 2;
  c.train.lr.warmup = 0;
  return c;
}

/// Is there an input that ranks can share out?
bool splits(Recompute recompute, int tp, bool sequence) {
  return recompute != Recompute::block_split || (tp > 1 && !sequence);
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
  for (DType dtype : {f32, bf16, f16})
    for (Layout layout :
         {Layout{.dp = 1},
          {.dp = 2, .pp = 2, .zero = 2, .schedule = "zb-h1"},
          {.dp = 2, .tp = 2, .zero = 3},
          {.dp = 1, .pp = 2, .tp = 2, .schedule = "zb-interleaved", .chunks = 2},
          {.dp = 2, .pp = 2, .tp = 2, .sequence_parallel = true, .zero = 3, .schedule = "zb-h1"}}) {
      auto run = [&](Recompute recompute) {
        Job c = small(layout, recompute);
        c.step().dtype = dtype;
        return trace(task_of(c), c.train);
      };
      Trace off = run(Recompute::off);
      for (auto& [recompute, name] : modes) {
        if (recompute == Recompute::off || !splits(recompute, layout.tp, layout.sequence_parallel))
          continue;
        SCOPED_TRACE(fmt::format("{}, {}: {}", dtype, name, describe(layout)));
        expect_equal(off, run(recompute));
        EXPECT_EQ(autograd::live_nodes(), 0);
      }
    }
}

/// One forward and backward of the first step on every rank; `look(mesh, replica)` afterwards.
template <class Look>
void forward_backward(const Job& c, const parallel::LayerObserver& observer, const Look& look) {
  parallel::Task task = task_of(c);
  on_mesh(c.step().mesh, [&](parallel::Mesh& mesh) {
    parallel::Replica replica(mesh, task.build, c.step(), facts_of(task, c.step()), observer);
    auto feed = feed_of(task, c.step(), mesh);
    mesh.dp().reset_ledger();
    mesh.tp().reset_ledger();
    memory::counter()->reset_peaks();
    replica.forward_backward([&](int64_t micro) { return feed.at(1, micro); }, {});
    look(mesh, replica);
  });
}

TEST(Recompute, ObserversSeeEachActivationOnce) {
  for (auto recompute : {Recompute::off, Recompute::selective, Recompute::block}) {
    Job c = small({.dp = 1}, recompute);
    std::map<std::string, int> seen;
    forward_backward(
        c, [&](auto& layer, auto&, auto&) { ++seen[layer]; }, [](auto&, auto&) {});
    EXPECT_EQ(seen.size(), 6);
    for (auto& [layer, times] : seen) EXPECT_EQ(times, c.step().accumulation()) << layer;
  }
}

// -- Memory

struct Cut {
  int tp;
  bool sequence;
};

/// The share of a tensor's rows that a rank has outside the split stretches.
double own(const Cut& cut) { return cut.sequence ? 1.0 / cut.tp : 1; }
double rows(const Job& c) { return double(c.step().micro_batch * c.model.context); }
/// Bytes of all rows of an activation.
double whole(const Job& c) {
  return rows(c) * double(c.model.width) * double(size_of(c.step().dtype));
}
double statistics(const Job& c, const Cut& cut) {
  return rows(c) * (16 * own(cut) + 4 * double(c.model.heads) / cut.tp);
}

/// Bytes that a block keeps of one micro-batch, as examples/minigpt/model.h says.
double kept(const Job& c, const Cut& cut) {
  double t = cut.tp;
  switch (c.step().recompute) {
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
double working(const Job& c, const Cut& cut) {
  double t = cut.tp, gradients = own(cut) + (cut.sequence ? 1 : 0) + 4 / t;
  Job off = c;
  off.step().recompute = Recompute::off;
  switch (c.step().recompute) {
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

Job wide(int64_t layers, DType dtype, Recompute recompute) {
  Job c = small({.dp = 1}, recompute);
  c.model = {.layers = layers, .heads = 4, .width = 64, .context = 32, .vocab = 13};
  c.step().global_batch = c.step().micro_batch;
  c.step().dtype = dtype;
  return c;
}

/// Activations that all blocks but the first have kept when forward is done, where one stage has
/// them all, and the peak of activations in the whole of forward and backward, on the last rank.
struct Held {
  double blocks = 0, peak = 0;
};
Held measure(Job c, const Cut& cut) {
  Held held;
  c.step().mesh.tp = cut.tp;
  c.step().sequence_parallel = cut.sequence;
  int last = c.ranks() - 1;
  parallel::Task task = task_of(c);
  on_mesh(c.step().mesh, [&](parallel::Mesh& mesh) {
    std::vector<int64_t> after;  // each layer: its input and output are there too
    parallel::Replica replica(mesh, task.build, c.step(), facts_of(task, c.step()),
                              [&](auto&, auto&, auto&) {
                                after.push_back(memory::counter()->live(memory::activations));
                              });
    auto feed = feed_of(task, c.step(), mesh);
    memory::counter()->reset_peaks();
    replica.forward_backward([&](int64_t micro) { return feed.at(1, micro); }, {});
    if (mesh.world().rank() < last) return;
    if (c.step().mesh.pp == 1) held.blocks = double(after[size_t(c.model.layers)] - after[1]);
    held.peak = double(memory::counter()->peak(memory::activations));
  });
  return held;
}

TEST(Recompute, KeepsWhatTheFormulaSays) {
  for (DType dtype : {f32, bf16})
    for (auto& cut : {Cut{1, false}, {2, false}, {2, true}, {4, true}})
      for (auto& [recompute, name] : modes) {
        if (!splits(recompute, cut.tp, cut.sequence)) continue;
        SCOPED_TRACE(
            fmt::format("{} {}, tp {}{}", dtype, name, cut.tp, cut.sequence ? " sequence" : ""));
        Job few = wide(3, dtype, recompute), many = wide(7, dtype, recompute);
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
    auto each = [&](Job c) {  // bytes a micro-batch
      c.step().mesh.pp = stages;
      c.step().schedule = "gpipe";
      auto peak = [&](int64_t micros) {
        c.step().global_batch = micros * c.step().micro_batch;
        return measure(c, cut).peak;
      };
      return (peak(6) - peak(2)) / 4;
    };
    Job off = wide(4, f32, Recompute::off);
    double all = each(off);
    for (auto& [recompute, name] : modes) {
      if (recompute == Recompute::off || !splits(recompute, cut.tp, cut.sequence)) continue;
      Job c = wide(4, f32, recompute);
      double saved = 4. / stages * (kept(off, cut) - kept(c, cut));
      EXPECT_NEAR(all - each(c), saved, 0.02 * saved) << name << ", stages " << stages;
    }
  }
}

// Inputs of the two norms and four products, 2 and 7 units, and gradients of their results, 2 and
// 9; whatever was kept or made again in the first half. x is there already.
TEST(Recompute, SplitBackwardHoldsWhatWeightGradientsNeed) {
  for (auto mode : {Recompute::off, Recompute::selective, Recompute::block}) {
    Job c = wide(1, f32, mode);
    c.model.dropout = 0.1;
    auto alone = parallel::single_rank();
    Gpt model(c.model, parallel::TensorParallel(*alone));
    model.materialize(cpu, f32, 1);
    const nn::Layer& block = model.layers()[1];
    nn::Batch batch{.input = zeros({c.step().micro_batch, c.model.context}, i32, cpu)};
    auto run = [&](const Tensor& x) {
      return mode == Recompute::selective ? block.selective(x, batch) : block.run(x, batch);
    };
    Tensor x = test::filled({int64_t(rows(c)), c.model.width}, 1, f32);
    require_grad(x);
    auto live = [] { return memory::counter()->live(); };
    int64_t before = live();
    Tensor y = without_values(mode == Recompute::block ? recompute(run, x) : run(x));
    autograd::Later later;
    backward(y, full(y.shape(), 1, f32, cpu), &later);
    grad(x) = {};
    EXPECT_EQ(double(live() - before), 19 * whole(c) + 16 * rows(c)) << int(mode);
    later.run();
  }
}

// -- Volume

/// Bytes that rank 0 has sent in its groups dp and tp in one step.
std::pair<double, double> sent(const Job& c) {
  std::pair<double, double> bytes;
  forward_backward(c, {}, [&](parallel::Mesh& mesh, auto&) {
    if (mesh.world().rank() == 0)
      bytes = {mesh.dp().ledger().total().bytes, mesh.tp().ledger().total().bytes};
  });
  return bytes;
}

// A block's two collectives in forward come again, over tp; its weights are gathered in backward
// anyway.
TEST(Recompute, SendsTheForwardOfTensorParallelAgain) {
  for (const Layout& layout : {Layout{.dp = 2, .tp = 2, .zero = 3},
                               {.dp = 1, .tp = 4},
                               {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 3}}) {
    Job c = small(layout, Recompute::off);
    double t = double(layout.tp),
           unit = 4 * (t - 1) / t * rows(c) * double(c.model.width);  // of an all-gather, bytes
    double blocks = double(c.model.layers * c.step().accumulation()) * unit;
    auto [dp_off, tp_off] = sent(c);
    for (auto& [recompute, again] : {std::pair{Recompute::selective, 0.},
                                     {Recompute::block, 4.},
                                     {Recompute::block_split, 5.}}) {
      if (!splits(recompute, layout.tp, layout.sequence_parallel)) continue;
      c.step().recompute = recompute;
      auto [dp, tp] = sent(c);
      EXPECT_EQ(dp, dp_off) << int(recompute);
      EXPECT_NEAR(tp - tp_off, again * blocks, 1e-6) << int(recompute);
    }
  }
}

}  // namespace triax::minigpt::recompute_test
