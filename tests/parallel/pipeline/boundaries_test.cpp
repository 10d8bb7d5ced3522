// What passes between stages may be of another shape and dtype at each cut, and only stages that
// read the batch are given one.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/parallel/pipeline/schedules.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/record.h"
#include "triax/nn/embedding.h"
#include "triax/nn/linear.h"
#include "triax/nn/sequence.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/pipeline/pipeline.h"

namespace triax::parallel::boundaries_test {

using namespace test;

constexpr int64_t samples = 3;
constexpr double seed = 0.25;

/// Seven layers; no two of what they return are alike in shape and dtype.
struct Net : nn::Sequence {
  struct Table : nn::Embedding {
    Table() : nn::Embedding(5, 4, nn::EmbeddingOptions{.std = 1}) {}
    Tensor operator()(const nn::Batch& b) const { return nn::Embedding::operator()(b.input); }
  };
  struct Up : nn::Linear {
    Up() : nn::Linear(4, 6, nn::LinearOptions{.std = 0.7}) {}
    Tensor operator()(const Tensor& x) const { return cast(tanh(nn::Linear::operator()(x)), f32); }
  };
  struct Down : nn::Linear {
    Down() : nn::Linear(6, 5, nn::LinearOptions{.std = 0.7}) {}
    Tensor operator()(const Tensor& x) const {
      return nn::Linear::operator()(cast(view(x, {-1, 6}), f64));
    }
  };
  struct Error : nn::Module {
    Tensor operator()(const Tensor& x, const nn::Batch& b) const { return x - b.target; }
  };

  Net() {
    add<Table>("table");
    add<Up>("up");
    add("cube", {}, [](const Tensor& x) { return view(x, {-1, 2, 3}) * 2.; });
    add("flat", {}, [](const Tensor& x) { return cast(view(x, {-1}), bf16); });
    add<Down>("down");
    add<Error>("error");
    add("sum", {}, [](const Tensor& x) { return sum(x * x); });
    materialize(cpu, f64, 1);
  }
};
constexpr int64_t layer_count = 7;
const std::vector<bool> reads{true, false, false, false, false, true, false};

/// What each layer returns of `n` samples.
Boundaries returned(int64_t n) {
  return {{{n, 4}, f64}, {{n, 6}, f32}, {{n, 2, 3}, f32}, {{n * 6}, bf16},
          {{n, 5}, f64}, {{n, 5}, f64}, {{}, f64}};
}

nn::Batch batch(int micro, int64_t n = samples) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back((micro * 2 + i) % 5);
  return {.input = from_host(ids, {n}, cpu), .target = filled({n, 5}, 50 + uint64_t(micro))};
}

/// Layers by virtual stage, as even as it goes; with more than seven places the last are empty.
std::vector<int64_t> even(int places) {
  std::vector<int64_t> counts;
  auto begin = [&](int v) { return (v * layer_count + places - 1) / places; };
  for (int v = 0; v < places; ++v) counts.push_back(begin(v + 1) - begin(v));
  return counts;
}

/// By cut: what the last layer before it returns of `n` samples.
Boundaries cuts(const std::vector<int64_t>& counts, int64_t n = samples) {
  Boundaries all, layers = returned(n);
  int64_t before = 0;
  for (size_t v = 0; v + 1 < counts.size(); ++v) {
    before += counts[v];
    all.push_back(layers[size_t(before - 1)]);
  }
  return all;
}

struct Outcome {
  std::map<int, double> sums;
  std::map<std::string, std::vector<double>> gradients;
  std::vector<int> asked;  ///< by stage: micro-batches it asked for

  void add_gradients(Net& net) {
    for (auto* p : net.parameters())
      if (Tensor g = grad(p->value); g.defined()) gradients[p->name] = values(g);
  }
};

Outcome plain(int micros) {
  Outcome all;
  Net net;
  for (int m = 0; m < micros; ++m) {
    Tensor y = net(batch(m));
    all.sums[m] = y.item();
    backward(y, full(y.shape(), seed, f64, cpu));
  }
  all.add_gradients(net);
  return all;
}

struct Stage {
  Net& net;
  Pipeline& pipeline;
  PipelineRun run;
};

Outcome on_stages(const Schedule& schedule, const PipelineShape& shape,
                  const std::function<void(Stage)>& body) {
  Outcome all{.asked = std::vector<int>(size_t(shape.stages))};
  std::mutex lock;
  auto counts = even(shape.virtual_stages());
  run_ranks(shape.stages, [&](Communicator& world) {
    Mesh mesh(world, {.pp = shape.stages});
    Net net;
    Pipeline pipeline(mesh, layers_of_stage(net.layers(), counts, shape, world.rank()),
                      {.schedule = schedule, .boundaries = cuts(counts)});
    auto asked = [&](int m) {
      ++all.asked[size_t(world.rank())];
      return batch(m);
    };
    auto output = [&](int m, const Tensor& y) { all.sums[m] = y.item(); };
    body({net, pipeline, {.micros = shape.micros, .batch = asked, .output = output, .seed = seed}});
    std::lock_guard guard(lock);
    all.add_gradients(net);
  });
  return all;
}

void expect_equal(const Outcome& got, const Outcome& expected) {
  EXPECT_EQ(got.sums, expected.sums);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (auto& [name, g] : expected.gradients) {
    auto& mine = got.gradients.at(name);
    for (size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(mine[i], g[i], 1e-12) << name << " " << i;
  }
}

/// `body` for all schedules, on 1 to 4 stages.
void on_all(int micros,
            const std::function<void(const Schedule& schedule, const PipelineShape& shape)>& body) {
  for (auto& name : schedule_names())
    for (int stages = 1; stages <= 4; ++stages)
      for (int chunks : chunks_of(name, 2)) {
        SCOPED_TRACE(fmt::format("{}, {} stages, {} chunks", name, stages, chunks));
        Schedule schedule = schedule_named(name);
        body(schedule, {stages, chunks, micros, schedule.placement});
      }
}

TEST(BoundariesTest, EachCutHasAShapeAndDtypeOfItsOwn) {
  Outcome expected = plain(4);
  on_all(4, [&](const Schedule& schedule, const PipelineShape& shape) {
    expect_equal(on_stages(schedule, shape, [](Stage s) { s.pipeline.train(s.run); }), expected);
  });
}

TEST(BoundariesTest, AStageThatReadsNoBatchIsAskedForNone) {
  on_all(4, [&](const Schedule& schedule, const PipelineShape& shape) {
    auto counts = even(shape.virtual_stages());
    std::vector<int> expected(size_t(shape.stages));
    int64_t layer = 0;
    for (int v = 0; v < shape.virtual_stages(); ++v) {
      bool needed = false;
      for (int64_t end = layer + counts[size_t(v)]; layer < end; ++layer)
        needed = needed || reads[size_t(layer)];
      if (needed) expected[size_t(shape.stage_of(v))] += shape.micros;
    }
    Outcome got = on_stages(schedule, shape, [](Stage s) { s.pipeline.train(s.run); });
    EXPECT_EQ(got.asked, expected);
  });
}

// A run may have its own boundaries, such as inference on another number of samples.
TEST(BoundariesTest, OneRunMayHaveOthers) {
  PipelineShape shape{4, 1, 3};
  Net net;
  Outcome got = on_stages(one_f_one_b, shape, [&](Stage s) {
    std::map<int, double> seen;
    PipelineRun other = s.run;
    other.boundaries = cuts(even(4), 1);
    other.batch = [](int m) { return batch(m, 1); };
    other.output = [&](int m, const Tensor& y) { seen[m] = y.item(); };
    s.pipeline.infer(other);
    for (auto [m, sum] : seen) EXPECT_EQ(sum, net(batch(m, 1)).item());
    EXPECT_EQ(seen.size(), s.pipeline.is_last() ? 3u : 0u);
    s.pipeline.train(s.run);
  });
  expect_equal(got, plain(3));
}

TEST(BoundariesTest, ThereIsOneForEachCut) {
  run_ranks(3, [](Communicator& world) {
    Mesh mesh(world, {.pp = 3});
    Net net;
    auto counts = even(3);
    auto chunks = layers_of_stage(net.layers(), counts, {3, 1, 1}, world.rank());
    auto make = [&](const Boundaries& b) { Pipeline(mesh, chunks, {.boundaries = b}); };
    Boundaries right = cuts(counts), more = right, other = right;
    more.push_back(right[0]);
    expect_error([&] { make(more); },
                 {"3 boundaries; expected one, or one for each of the 2 cuts"});
    expect_error([&] { make({}); }, {"0 boundaries"});
    other[1].dtype = f16;
    expect_config_error([&] { make(world.rank() == 2 ? other : right); },
                        {"stage 2 has 1 chunk and sends [3, 2, 3] f32 [3, 5] f16",
                         "stage 0 has 1 chunk and sends [3, 2, 3] f32 [3, 5] f64"});
  });
}

// So that a loss can make its gradient in forward.
TEST(PipelineTest, TheLastLayerIsToldWhatBackwardStartsFrom) {
  run_ranks(1, [&](Communicator& world) {
    Mesh mesh(world, {});
    Tensor w = full({2}, 1, f32, cpu);
    require_grad(w);
    int right = 0;
    auto run = [&](const Tensor&, const nn::Batch& b) {
      return record("last", full({}, 2, f32, cpu), {w},
                    [&right, told = b.loss.seed](const Tensor& dy) {
                      EXPECT_EQ(dy.item(), 0.5);
                      right += told.defined() && told.data() == dy.data();
                      return Tensors{full({2}, 1, f32, cpu)};
                    });
    };
    Pipeline pipeline(mesh, {{{"last", {}, run}}}, {});
    pipeline.train({.micros = 2, .batch = [](int) { return nn::Batch{}; }, .seed = 0.5});
    EXPECT_EQ(right, 2);
  });
}

}  // namespace triax::parallel::boundaries_test
