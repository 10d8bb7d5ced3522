// One model on any number of ranks: equal gradients, norms and weights. correctness 1-3, 11.
#include "triax/parallel/data/data_parallel.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/nn/layer.h"
#include "triax/nn/linear.h"
#include "triax/nn/norm.h"
#include "triax/optim/adamw.h"
#include "triax/optim/schedule.h"
#include "triax/parallel/comm/threads/thread_comm.h"

namespace triax::parallel::data_parallel_test {

using namespace test;

/// A weight used twice, one never, odd sizes, and a part that some micro-batches leave out.
struct Net : nn::Module {
  nn::Linear& in = child<nn::Linear>("in", 5, 7, nn::LinearOptions{.std = 0.5});
  nn::LayerNorm& norm = child<nn::LayerNorm>("norm", 7);
  nn::Linear& twice = child<nn::Linear>("twice", 7, 7, nn::LinearOptions{.std = 0.5});
  nn::Linear& unused = child<nn::Linear>("unused", 3, 3);
  nn::Linear& rare = child<nn::Linear>("rare", 7, 7, nn::LinearOptions{.std = 0.5});
  nn::Linear& out = child<nn::Linear>("out", 7, 3, nn::LinearOptions{.std = 0.5});

  Tensor operator()(const Tensor& x, bool with_rare) const {
    Tensor h = norm(in.gelu(x));
    h = twice(tanh(twice(h)));
    return out(with_rare ? h + rare(h) : h);
  }
};

constexpr int64_t batch = 24;
constexpr int steps = 4;

Tensor sample_loss(const Net& net, int step, int64_t first, int64_t count) {
  Tensor x = filled({batch, 5}, 100 + uint64_t(step), f32, 1).narrow(0, first, count);
  Tensor t = filled({batch, 3}, 200 + uint64_t(step), f32, 1).narrow(0, first, count);
  Tensor d = net(x, first == 0) - t;
  return sum(d * d);
}

struct Result {
  std::vector<double> loss, norm, gradients, weights;
};

TEST(DataParallelTest, RanksHaveTheSameModelAndSeed) {
  auto differ = [](uint64_t seed_of_last, int64_t width_of_last) {
    run_ranks(3, [&](Communicator& world) {
      bool last = world.rank() == 2;
      nn::Linear net(3, last ? width_of_last : 4);
      DataParallel data(net, world, {.seed = last ? seed_of_last : 1});
    });
  };
  differ(1, 4);
  expect_error([&] { differ(2, 4); }, {"different models or seeds", " has seed ", "weight [4, 3]"},
               Exit::mismatch);
  expect_error([&] { differ(1, 5); }, {"different models or seeds", " has seed 1, weight ["},
               Exit::mismatch);
}

/// `order`: reduce as soon as buckets fill, or everything at the end.
Result train(int ranks, int64_t micros, const BucketSizes& sizes) {
  Result result;
  std::mutex lock;
  run_ranks(ranks, [&](Communicator& world) {
    Net net;
    DataParallel data(net, world, {.seed = 3, .buckets = sizes});
    optim::AdamW adam(data.slots(), {.beta2 = 0.99, .eps = 1e-6});
    int64_t each = batch / ranks / micros;
    for (int step = 0; step < steps; ++step) {
      double loss = 0;
      data.begin(micros);
      for (int64_t m = 0; m < micros; ++m) {
        // The piece that starts at sample 0, and only it, uses `rare`.
        Tensor l = sample_loss(net, step, (m * ranks + world.rank()) * each, each);
        loss += l.item();
        backward(l, full({}, 1.0 / batch, f32, cpu));
      }
      data.finish();
      Tensor total = from_host(std::vector<double>{loss}, {1}, cpu);
      world.all_reduce(total).wait();
      double norm = data.norm().value;
      adam.step(1e-2, optim::clip_factor(norm, 0.5));
      std::lock_guard guard(lock);
      if (world.rank() == 0) {
        result.loss.push_back(total.item());
        result.norm.push_back(norm);
      }
    }
    std::vector<double> w, g;
    for (auto* p : net.parameters()) {
      for (double v : values(p->value)) w.push_back(v);
      for (double v : values(grad(p->value))) g.push_back(v);
    }
    std::lock_guard guard(lock);
    // Every replica holds the same bits (correctness 42).
    if (result.weights.empty()) result.weights = w, result.gradients = g;
    EXPECT_EQ(result.weights, w) << "replicas differ on rank " << world.rank();
    EXPECT_EQ(result.gradients, g);
  });
  return result;
}

void expect_same(const Result& a, const Result& b) {
  for (size_t i = 0; i < a.loss.size(); ++i) {
    EXPECT_NEAR(a.loss[i], b.loss[i], 1e-6 * a.loss[i]) << "loss, step " << i;
    EXPECT_NEAR(a.norm[i], b.norm[i], 5e-5 * a.norm[i]) << "norm, step " << i;
  }
  double largest = 0;
  for (double g : a.gradients) largest = std::max(largest, std::abs(g));
  for (size_t i = 0; i < a.gradients.size(); ++i)
    ASSERT_NEAR(a.gradients[i], b.gradients[i], 1e-5 * largest) << "gradient " << i;
}

TEST(DataParallelTest, AnyNumberOfRanksTrainsTheSameModel) {
  Result one = train(1, 1, {});
  for (int ranks : {1, 2, 3, 4})
    for (int64_t micros : {1, 2})
      for (int64_t elements : {1, 40, 1 << 20}) {
        SCOPED_TRACE(
            fmt::format("{} ranks, {} micro-batches, buckets of {}", ranks, micros, elements));
        // `rare` takes part when a piece starts at sample 0, whatever the cut.
        if (ranks * micros > 1 && elements == 1) continue;  // covered by the other sizes
        Result other = train(ranks, micros, {.first = elements, .other = elements});
        if (ranks == 1 && micros == 1) expect_same(one, other);
        // Cut otherwise, `rare` sees other samples: compare cuts of the same number of pieces.
        else expect_same(train(1, micros * ranks, {}), other);
      }
}

TEST(DataParallelTest, BucketsFollowReverseOrderAndSizes) {
  Net net;
  net.bind(1);
  auto layout = lay_out({{.parameters = net.parameters()}}, {.first = 64, .other = 100}, 1);
  EXPECT_EQ(layout[0].pieces[0].parameter->name, "out.bias");
  size_t count = 0;
  for (size_t b = 0; b < layout.size(); ++b) {
    int64_t end = 0;
    for (auto& piece : layout[b].pieces) {
      EXPECT_EQ(piece.begin % 16, 0);
      EXPECT_GE(piece.begin, end);
      end = piece.begin + piece.length;
      ++count;
    }
    EXPECT_LE(layout[b].length, b == 0 ? 64 : 100);
  }
  EXPECT_EQ(count, net.parameters().size());
}

// Buckets start to be reduced before backward ends, in the order of the layout.
TEST(DataParallelTest, ReducesWhileBackwardRuns) {
  run_ranks(2, [](Communicator& world) {
    struct Deep : nn::Module {
      nn::Linear& a = child<nn::Linear>("a", 4, 4);
      nn::Linear& b = child<nn::Linear>("b", 4, 4);
    } net;
    DataParallel data(net, world, {.seed = 1, .buckets = {.first = 1, .other = 1}});
    data.begin();
    world.reset_ledger();
    int64_t seen = -1;
    Tensor x = filled({2, 4}, 1, f32);
    require_grad(x);
    on_grad(x, [&] { seen = world.ledger()[Call::all_reduce].calls; });
    backward(sum(net.b(net.a(x))));
    EXPECT_GE(seen, 2) << "the last layer's buckets wait until the input's gradient is there";
    data.finish();
    EXPECT_EQ(world.ledger()[Call::all_reduce].calls, 4);
  });
}

TEST(DataParallelTest, VolumeIsTwiceTheModel) {
  run_ranks(4, [](Communicator& world) {
    nn::Linear net(16, 16, {.bias = false});
    DataParallel data(net, world, {.seed = 1});
    data.begin(3);
    world.reset_ledger();
    for (int m = 0; m < 3; ++m) backward(sum(net(filled({2, 16}, 1, f32))));
    data.finish();
    EXPECT_DOUBLE_EQ(world.ledger().total().bytes, 2.0 * 3 / 4 * 4 * 256);
  });
}

// correctness 12 in one dimension: an inf on one rank is seen by all, and named.
TEST(DataParallelTest, NonFiniteGradientsAreSeenEverywhere) {
  run_ranks(2, [](Communicator& world) {
    Net net;
    DataParallel data(net, world, {.seed = 3});
    data.begin();
    Tensor x = filled({2, 5}, 1, f32);
    if (world.rank() == 1) fill_(x.narrow(0, 0, 1).narrow(1, 2, 1), INFINITY);
    backward(sum(net(x, false)));
    data.finish();
    EXPECT_GT(data.norm().non_finite, 0);
    EXPECT_TRUE(std::isinf(data.norm().value));
    EXPECT_EQ(data.first_non_finite().parameter, "in.weight");
  });
}

TEST(DataParallelTest, OneRankWithoutDataStillTakesPart) {
  std::vector<double> alone;
  for (int ranks : {1, 2})
    run_ranks(ranks, [&](Communicator& world) {
      Net net;
      DataParallel data(net, world, {.seed = 3});
      data.begin();
      if (world.rank() == 0) backward(sum(net(filled({2, 5}, 1, f32), true)));
      data.finish();
      EXPECT_GT(data.norm().value, 0);
      std::vector<double> g;
      for (auto* p : net.parameters())
        for (double v : values(grad(p->value))) g.push_back(v);
      if (ranks == 1) alone = g;
      EXPECT_EQ(g, alone) << "rank " << world.rank() << " of " << ranks;
    });
  run_ranks(2, [](Communicator& world) {
    Net net;
    DataParallel data(net, world, {.seed = 3});
    data.begin();
    data.finish();
    expect_error([&] { data.finish(); }, {"finish without begin"});
    expect_error([&] { data.begin(0); }, {"0 micro-batches"});
  });
}

// Every parameter is held by one pipeline stage, or by both ends if it is tied, for any number of
// stages; and options that say nothing known.

struct Stage : nn::Module {
  nn::Parameter& weight = parameter({.name = "weight", .full = {2}, .init = {.std = 0.5}});
};
struct Tied : nn::Module {
  nn::Parameter& table =
      parameter({.name = "table", .full = {3}, .init = {.std = 0.5}, .tied = true});
};

/// A stage of its own for each of `stages`, and a table that is used where `uses_table` says.
void build(int stages, const std::function<bool(int stage)>& uses_table, int also_uses_1 = 1) {
  struct Model : nn::Module {
    explicit Model(int n) {
      for (int s = 0; s < n; ++s) all.push_back(&child<Stage>(fmt::format("stage{}", s)));
    }
    std::vector<Stage*> all;
    Tied& tied = child<Tied>("tied");
  };
  run_ranks(stages, [&](Communicator& world) {
    Mesh mesh(world, {.pp = stages});
    int stage = mesh.pp().rank();
    Model model(stages);
    nn::Layers layers{{.name = "own", .uses = {model.all[size_t(stage)]}}};
    if (uses_table(stage)) layers.push_back({.name = "table", .uses = {&model.tied}});
    if (stage == also_uses_1 && stage != 1)
      layers.push_back({.name = "again", .uses = {model.all[1]}});
    std::vector<nn::Layers> chunks{layers};
    DataParallel data(model, chunks, mesh, {});
    EXPECT_EQ(data.parameter_count(), 2 * stages + 3);
  });
}

TEST(HeldOnce, ByBothEndsOfAnyNumberOfStagesIfTied) {
  for (int stages : {2, 3, 64, 65, 66})
    build(stages, [&](int s) { return s == 0 || s == stages - 1; });
}

TEST(HeldOnce, RefusesOtherHoldersAndNamesThem) {
  const int stages = 66;
  expect_config_error([&] { build(stages, [](int s) { return s == 0; }); },
                      {"tied.table (tied) is used on stage 0; expected stages 0 and 65", "--pp"});
  expect_config_error([&] { build(stages, [](int s) { return s == 0 || s == 64; }); },
                      {"tied.table (tied) is used on stages 0, 64; expected stages 0 and 65"});
  expect_config_error([&] { build(stages, [](int) { return false; }); },
                      {"tied.table (tied) is used on no stage;"});
  expect_config_error(
      [&] {
        build(
            stages, [&](int s) { return s == 0 || s == stages - 1; }, 65);
      },
      {"stage1.weight (not tied) is used on stages 1, 65; expected one stage"});
}

TEST(ZeroStage, OfNoKnownNumberIsRefused) {
  auto alone = single_rank();
  Stage model;
  for (int stage : {7, 4, -1})
    expect_config_error([&] { DataParallel(model, *alone, {.zero = Zero(stage)}); },
                        {fmt::format("ZeRO stage {}; expected 0, 1, 2 or 3", stage)});
}

}  // namespace triax::parallel::data_parallel_test
