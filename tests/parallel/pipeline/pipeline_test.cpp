// The executor on layers of its own, without any GPT: whatever the schedule, the gradients are
// those of the plain model. correctness 1, 2, 26, 28, 29.
#include "triax/parallel/pipeline/pipeline.h"

#include <fmt/core.h>

#include <mutex>
#include <numeric>

#include "tests/parallel/pipeline/schedules.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/nn/embedding.h"
#include "triax/nn/linear.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/pipeline/check_schedule.h"

namespace triax::parallel::pipeline_test {

using namespace test;

constexpr int64_t rows = 3, width = 4;
constexpr double seed = 0.25;
const PipelineOptions options{.boundaries = {{{rows, width}, f64}}};

PipelineOptions with(const Schedule& schedule) {
  return {.schedule = schedule, .boundaries = options.boundaries};
}

/// Seven layers: a table, five products, and a number.
struct Net : nn::Module {
  nn::Embedding& table = child<nn::Embedding>("table", 5, width, nn::EmbeddingOptions{.std = 1});
  std::vector<nn::Linear*> products;
  int runs = 0;  // of any layer

  Net() {
    for (int i = 0; i < 5; ++i)
      products.push_back(&child<nn::Linear>("product" + std::to_string(i), width, width,
                                            nn::LinearOptions{.std = 0.7}));
    materialize(cpu, f64, 1);
  }

  nn::Layers layers() {
    nn::Layers all;
    auto add = [&](const char* name, std::vector<nn::Module*> uses, auto run) {
      all.push_back({name, uses, [this, run](const Tensor& x, const nn::Batch& batch) {
                       ++runs;
                       return run(x, batch);
                     }});
    };
    add("table", {&table},
        [this](const Tensor&, const nn::Batch& batch) { return table(batch.input); });
    for (auto* p : products)
      add("product", {p}, [p](const Tensor& x, const nn::Batch&) { return tanh((*p)(x)); });
    add("sum", {}, [](const Tensor& x, const nn::Batch&) { return sum(x * x); });
    return all;
  }
};

nn::Batch batch(int micro) {
  std::vector<int32_t> ids;
  for (int i = 0; i < rows; ++i) ids.push_back((micro * 2 + i) % 5);
  return {.input = from_host(ids, {rows}, cpu)};
}

/// What came of the micro-batches: the sum of each, and all gradients by name.
struct Outcome {
  std::map<int, double> sums;
  std::map<std::string, std::vector<double>> gradients;
  std::vector<int> peaks;  ///< by stage

  void add_gradients(Net& net) {
    for (auto* p : net.parameters())
      if (Tensor g = grad(p->value); g.defined()) {
        EXPECT_FALSE(gradients.contains(p->name)) << p->name << " on two stages";
        gradients[p->name] = values(g);
      }
  }
};

/// The first of the model's layers, one after the other.
nn::Layers first_layers(Net& net, int64_t count) {
  nn::Layers all = net.layers();
  all.resize(size_t(count));
  return all;
}

Outcome plain(int micros, int64_t layers = 7) {
  Outcome all;
  Net net;
  for (int m = 0; m < micros; ++m) {
    Tensor x;
    for (auto& layer : first_layers(net, layers)) x = layer.run(x, batch(m));
    all.sums[m] = sum(x).item();
    backward(x, full(x.shape(), seed, f64, cpu));
  }
  all.add_gradients(net);
  return all;
}

/// The table first, the sum last, the products between as evenly as it goes: with more than five
/// places some of them are empty.
std::vector<int64_t> even(int places) {
  std::vector<int64_t> counts;
  for (int v = 0; v < places; ++v) counts.push_back((v + 1) * 5 / places - v * 5 / places);
  ++counts.front();
  ++counts.back();
  return counts;
}

struct Stage {
  Mesh& mesh;
  Net& net;
  const std::vector<nn::Layers>& chunks;
  Pipeline& pipeline;
  PipelineRun run;  ///< its output: the board's
  int number;
};

/// `body` on every stage of `shape`; returns what they did together.
Outcome on_stages(const Schedule& schedule, const PipelineShape& shape,
                  const std::vector<int64_t>& counts, const std::function<void(Stage)>& body) {
  Outcome all;
  std::mutex lock;
  run_ranks(shape.stages, [&](Communicator& world) {
    Mesh mesh(world, {.pp = shape.stages});
    Net net;
    auto layers = first_layers(net, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    auto chunks = layers_of_stage(layers, counts, shape, world.rank());
    Pipeline pipeline(mesh, chunks, with(schedule));
    auto output = [&](int m, const Tensor& y) { all.sums[m] = sum(y).item(); };
    PipelineRun run{.micros = shape.micros, .batch = batch, .output = output, .seed = seed};
    body({mesh, net, chunks, pipeline, run, world.rank()});
    std::lock_guard guard(lock);
    all.add_gradients(net);
    all.peaks.resize(size_t(shape.stages));
    all.peaks[size_t(world.rank())] = pipeline.peak_live();
  });
  EXPECT_EQ(autograd::live_nodes(), 0);
  return all;
}

Outcome train(const Schedule& schedule, const PipelineShape& shape,
              const std::vector<int64_t>& counts) {
  return on_stages(schedule, shape, counts, [](Stage s) { s.pipeline.train(s.run); });
}

void expect_equal(const Outcome& got, const Outcome& expected) {
  ASSERT_EQ(got.sums.size(), expected.sums.size());
  for (auto [micro, sum] : expected.sums) EXPECT_NEAR(got.sums.at(micro), sum, 1e-12) << micro;
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (auto& [name, g] : expected.gradients) {
    auto& mine = got.gradients.at(name);
    for (size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(mine[i], g[i], 1e-12) << name << " " << i;
  }
}

TEST(PipelineTest, AnyScheduleHasTheGradientsOfThePlainModel) {
  for (int micros = 1; micros <= 6; ++micros) {
    Outcome expected = plain(micros);
    for (auto& name : schedule_names())
      for (int stages = 1; stages <= 4; ++stages)
        for (int chunks : chunks_of(name, 3)) {
          auto schedule = schedule_named(name);
          PipelineShape shape{stages, chunks, micros, schedule.placement};
          SCOPED_TRACE((Case{name, shape}.str()));
          Outcome got = train(schedule, shape, even(shape.virtual_stages()));
          expect_equal(got, expected);
          EXPECT_EQ(got.peaks, check_schedule(schedule, shape));
        }
  }
}

TEST(PipelineTest, StagesMayHaveNoLayers) {
  using Counts = std::vector<int64_t>;
  for (auto& counts : {Counts{1, 0, 0, 6}, Counts{2, 0, 4, 1}, Counts{6, 0, 0, 0}}) {
    Outcome expected = plain(3, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    expect_equal(train(zb_h1, {4, 1, 3}, counts), expected);
    expect_equal(train(interleaved, {2, 2, 3}, counts), expected);
    expect_equal(train(schedule_named("zb-v"), {2, 2, 3, Placement::v}, counts), expected);
  }
}

TEST(PipelineTest, RunsAScheduleOfTheUsersOwn) {
  auto last_in_first_out = [](const PipelineShape& shape, int) {
    Actions list;
    for (int m = 0; m < shape.micros; ++m) list.push_back({Action::forward, 0, m});
    for (int m = shape.micros; m-- > 0;) list.push_back({Action::backward, 0, m});
    return list;
  };
  for (int stages = 1; stages <= 4; ++stages)
    expect_equal(train(last_in_first_out, {stages, 1, 5}, even(stages)), plain(5));
}

// Found before any layer has run, in the checker's words; the pipeline is as good as before.
TEST(PipelineTest, RefusesAWrongSchedule) {
  PipelineShape shape{2, 1, 2};
  auto early = [](const PipelineShape& s, int stage) {
    Actions list = gpipe(s, stage);
    if (stage == 1) std::swap(list[1], list[2]);  // the backward of 0 comes before it
    if (stage == 1) std::swap(list[0], list[1]);
    return list;
  };
  auto crossed = [](const PipelineShape& s, int stage) {
    Actions list = gpipe(s, stage);
    if (stage == 1) std::swap(list[0], list[1]);
    return list;
  };
  auto circle = [](const PipelineShape&, int stage) -> Actions {
    if (stage == 0)
      return {{Action::forward, 0, 0},
              {Action::backward, 0, 0},
              {Action::forward, 0, 1},
              {Action::backward, 0, 1}};
    return {{Action::forward, 0, 0},
            {Action::forward, 0, 1},
            {Action::backward, 0, 0},
            {Action::backward, 0, 1}};
  };
  Outcome got = on_stages(one_f_one_b, shape, {3, 4}, [&](Stage s) {
    auto refused = [&](const Schedule& schedule, const char* words) {
      Pipeline other(s.mesh, s.chunks, with(schedule));
      expect_config_error([&] { other.train(s.run); }, {words});
    };
    refused(early, "stage 1, position 0: backward of micro-batch 0, chunk 0 before its forward");
    refused(crossed, "but it is the activation of micro-batch 0 from virtual stage 0 to 1");
    refused(circle, "schedule: deadlock: ");
    EXPECT_EQ(s.net.runs, 0);
    s.pipeline.train(s.run);
  });
  expect_equal(got, plain(2));
}

TEST(PipelineTest, StagesMustAgreeBeforeTheyStart) {
  struct Case {
    PipelineOptions other;
    size_t chunks;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {{.boundaries = {{{rows, 5}, f64}}},
       1,
       {"stage 1 has 1 chunk", "[3, 5] f64", "stage 0", "[3, 4] f64"}},
      {{.boundaries = {{{rows + 1, width}, f64}}}, 1, {"[4, 4] f64", "[3, 4] f64"}},
      {{.boundaries = {{{rows * width}, f64}}}, 1, {"[12] f64", "[3, 4] f64"}},
      {{.boundaries = {{{rows, width}, f32}}}, 1, {"[3, 4] f32", "[3, 4] f64"}},
      {{.boundaries = {{{rows, width}, f64}}}, 2, {"stage 1 has 2 chunks", "stage 0 has 1"}}};
  for (auto& [other, chunks, words] : cases)
    run_ranks(3, [&, &other = other, &chunks = chunks, &words = words](Communicator& world) {
      Mesh mesh(world, {.pp = 3});
      Net net;
      bool odd = world.rank() == 1;
      auto layers = layers_of_stage(net.layers(), {3, 2, 2}, {3, 1, 1}, world.rank());
      if (odd) layers.resize(chunks);
      expect_config_error([&] { Pipeline(mesh, layers, odd ? other : options); }, words);
    });
}

TEST(PipelineTest, PlacementsMustFit) {
  Net net;
  auto words = [&](std::vector<int64_t> counts) {
    return error_of([&] { layers_of_stage(net.layers(), counts, {2, 1, 1}, 0); });
  };
  EXPECT_TRUE(says(words({3, 3}), "6 layers placed on 2 virtual stages; expected 7 layers on 2"));
  EXPECT_TRUE(says(words({3, 3, 1}), "7 layers placed on 3 virtual stages"));
}

/// Stage `at` of three returns `y` from its last layer: training ends with these words.
void expect_refused(int at, const Tensor& y, const std::string& words) {
  auto work = [&] {
    run_ranks(3, [&](Communicator& world) {
      Mesh mesh(world, {.pp = 3});
      Net net;
      auto chunks = layers_of_stage(net.layers(), {3, 2, 2}, {3, 1, 2}, world.rank());
      if (world.rank() == at)
        chunks[0].back().run = [&](const Tensor&, const nn::Batch&) { return y; };
      Pipeline(mesh, chunks, options).train({.micros = 2, .batch = batch});
    });
  };
  expect_data_error(work, {words, "all batches must have one shape: pad"});
}

TEST(PipelineTest, WhatIsSentHasTheAgreedShapeAndDtype) {
  std::string first = "pipeline: activation of micro-batch 0 from virtual stage 0 to 1 is ";
  expect_refused(0, zeros({rows, width + 1}, f64, cpu), first + "[3, 5] f64");
  expect_refused(0, zeros({rows, width}, f32, cpu), first + "[3, 4] f32");
  expect_refused(0, zeros({rows * width}, f64, cpu), "expected [3, 4] f64 as agreed");
  expect_refused(0, {}, first + "an undefined tensor");
  expect_refused(1, zeros({1, width}, f64, cpu), "from virtual stage 1 to 2 is [1, 4] f64");
}

// A stage that has nothing to give to the next.
TEST(PipelineTest, TheFirstStageNeedsALayer) {
  expect_config_error(
      [] {
        train(one_f_one_b, {2, 1, 1}, {0, 7});
      },
      {"pipeline: the first stage has no layers"});
}

// correctness 29. Forward only, between two steps of training, with other numbers of micro-batches.
TEST(PipelineTest, InferenceLeavesTrainingAsItWas) {
  for (auto& name : {"zb-h1", "interleaved", "zb-v"}) {
    Schedule schedule = schedule_named(name);
    int stages = 4 / schedule.chunks;
    PipelineShape shape{stages, schedule.chunks, 3, schedule.placement};
    auto run = [&](bool look) {
      return on_stages(schedule, shape, even(4), [&](Stage s) {
        std::map<int, double> seen;
        PipelineRun inference = s.run;
        inference.output = [&](int m, const Tensor& y) {
          EXPECT_FALSE(requires_grad(y));
          seen[m] = y.item();
        };
        for (int micros : {5, 1, 2}) {
          inference.micros = micros;
          if (int held = std::max(1, s.pipeline.peak_live()); look) {
            s.pipeline.infer(inference);
            EXPECT_EQ(s.pipeline.peak_live(), held) << "it keeps nothing: the peak is training's";
          }
          s.pipeline.train(s.run);
        }
        Outcome expected = plain(5);
        if (!look || !s.pipeline.is_last()) {
          EXPECT_TRUE(seen.empty());
          return;
        }
        ASSERT_EQ(seen.size(), 5);
        for (auto [m, sum] : seen) EXPECT_NEAR(sum, expected.sums[m], 1e-12);
      });
    };
    Outcome looked = run(true), alone = run(false);
    EXPECT_EQ(looked.gradients, alone.gradients);  // bitwise
    EXPECT_EQ(looked.sums, alone.sums);
    EXPECT_EQ(looked.peaks, alone.peaks);
  }
}

/// An op that fails in the backward of a micro-batch.
Tensor fails_backward(const Tensor& x) {
  return record("fails", x.detach(), {x},
                [](const Tensor&) -> Tensors { throw Error(Exit::usage, "planted: in backward"); });
}

TEST(PipelineTest, AnErrorOnOneStageEndsAllWithIt) {
  for (int at = 0; at < 4; ++at)
    for (bool in_backward : {false, true}) {
      if (at == 0 && in_backward) continue;  // its layer has no input to go back to
      SCOPED_TRACE(fmt::format("stage {}, {}", at, in_backward ? "backward" : "forward"));
      auto work = [&] {
        run_ranks(4, [&](Communicator& world) {
          Mesh mesh(world, {.pp = 4});
          Net net;
          auto chunks = layers_of_stage(net.layers(), {2, 2, 2, 1}, {4, 1, 6}, world.rank());
          int calls = 0;
          auto run = chunks[0][0].run;
          auto failing = [&, run](const Tensor& x, const nn::Batch& batch) {
            bool now = ++calls == 3;
            if (now && !in_backward) throw Error(Exit::usage, "planted: in forward");
            return run(now ? fails_backward(x) : x, batch);
          };
          if (world.rank() == at) chunks[0][0].run = failing;
          Pipeline(mesh, chunks, options).train({.micros = 6, .batch = batch});
        });
      };
      expect_error(work, {in_backward ? "planted: in backward" : "planted: in forward"},
                   Exit::usage);
    }
}

// On one rank an error can be caught; what the run that failed had handed over is forgotten.
TEST(PipelineTest, StartsAfreshAfterAnError) {
  Net net;
  auto world = single_rank();
  Mesh mesh(*world, {});
  PipelineShape shape{1, 3, 3};
  auto chunks = layers_of_stage(net.layers(), {3, 2, 2}, shape, 0);
  bool fail = true;
  auto run = chunks[2][0].run;
  chunks[2][0].run = [&, run](const Tensor& x, const nn::Batch& b) {
    if (fail) throw Error(Exit::usage, "planted");
    return run(x, b);
  };
  Pipeline pipeline(mesh, chunks, with(interleaved));
  auto other = [](int m) { return batch(m + 2); };
  expect_error([&] { pipeline.train({.micros = 3, .batch = other}); }, {"planted"}, Exit::usage);
  fail = false;
  Outcome got;
  auto output = [&](int m, const Tensor& y) { got.sums[m] = y.item(); };
  pipeline.train({.micros = 3, .batch = batch, .output = output, .seed = seed});
  got.add_gradients(net);
  expect_equal(got, plain(3));
}

}  // namespace triax::parallel::pipeline_test
