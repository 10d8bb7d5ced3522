// Offload and reload in a schedule: simulated, checked, added to lists, and executed.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/parallel/pipeline/schedules.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/nn/linear.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/pipeline/check_schedule.h"
#include "triax/parallel/pipeline/pipeline.h"
#include "triax/parallel/pipeline/synthesis/schedule_file.h"
#include "triax/parallel/pipeline/synthesis/synthesis.h"

namespace triax::parallel::offload_test {

using namespace test;

/// Reads `F0 O0 R0 A0`, of chunk 0.
Actions list_of(const std::string& text) {
  Actions list;
  for (size_t at = 0; at < text.size(); at += 3)
    list.push_back({Action::Kind(std::string("FAIWOR").find(text[at])), 0, text[at + 1] - '0'});
  return list;
}

Schedule fixed(std::vector<Actions> lists, Placement placement = Placement::ring, int chunks = 1) {
  auto make = [lists](const PipelineShape&, int stage) { return lists[size_t(stage)]; };
  return {make, placement, chunks};
}

Actions passes(Actions list) {
  std::erase_if(list, [](const Action& a) { return copies(a.kind); });
  return list;
}

TEST(Offload, IsSimulatedOnLanesOfItsOwn) {
  struct Case {
    const char* list;
    double copy, time, idle;
  };
  // The copy of 0 begins at 1, after its forward; a reload where it stands, once its lane is free.
  for (const Case& c : {Case{"F0 F1 O0 R0 A1 A0", 1.5, 6.5, .5},       // out 1 to 2.5, back to 4
                        Case{"F0 F1 O0 R0 A1 A0", 5, 13, 7},           // out 1 to 6, back to 11
                        Case{"F0 F1 O0 A1 R0 A0", 1.5, 8, 2},          // back 4.5 to 6
                        Case{"F0 F1 O0 O1 R0 R1 A1 A0", 2, 13, 7},     // out to 3, 5; back to 7, 9
                        Case{"F0 F1 O0 O1 R0 R1 A0 A1", 2, 11, 5}}) {  // A0 from 7
    Simulation s = simulate({list_of(c.list)}, {.micros = 2}, Durations{.copy = c.copy});
    EXPECT_DOUBLE_EQ(s.time, c.time) << c.list;
    EXPECT_DOUBLE_EQ(s.idle[0], c.idle) << c.list;
  }
  Simulation s = simulate({list_of("F0 F1 O0 R0 A1 A0")}, {.micros = 2}, Durations{.copy = 1.5});
  EXPECT_EQ(std::pair(s.actions[2].begin, s.actions[2].end), std::pair(1., 2.5));
  EXPECT_EQ(std::pair(s.actions[3].begin, s.actions[3].end), std::pair(2.5, 4.));
}

// The next receive is posted when a backward takes its input, which waits for the copy too.
TEST(Offload, ReceivesArePostedAfterCopiesAreBack) {
  std::vector<Actions> lists{list_of("F0 O0 F1 F2 R0 I0 W0 I1 W1 I2 W2"),
                             list_of("F0 I0 W0 F1 I1 W1 F2 I2 W2")};
  EXPECT_DOUBLE_EQ(
      simulate(lists, {.stages = 2, .micros = 3}, Durations{.latency = 3, .copy = 10}).time, 31);
}

TEST(Offload, IsNotHeldMeanwhile) {
  Actions list = list_of("F0 F1 O0 F2 A1 R0 A2 A0");
  EXPECT_EQ(most_held(list, {.micros = 3}, 1), 2);
  EXPECT_EQ(check_schedule(fixed({list}), {.micros = 3}), std::vector{2});
  EXPECT_EQ(label(list[2], 1) + label(list[5], 2), "O0R0a");
  EXPECT_EQ(str(list[5]), "reload of micro-batch 0, chunk 0");
}

TEST(Offload, WrongOrdersAreRefused) {
  struct Case {
    const char *list, *says;
  };
  for (const Case& c :
       {Case{"O0 F0 R0 A0", "position 0: offload of micro-batch 0, chunk 0 before its forward"},
        Case{"F0 R0 O0 A0", "position 1: reload of micro-batch 0, chunk 0 before its offload"},
        Case{"F0 O0 A0 R0", "position 2: backward of micro-batch 0, chunk 0 while in host memory"},
        Case{"F0 O0 I0 W0", "position 2: backward_input of micro-batch 0, chunk 0 while in host"},
        Case{"F0 A0 O0 R0", "position 2: offload of micro-batch 0, chunk 0 after its backward at"},
        Case{"F0 I0 O0 W0", "offload of micro-batch 0, chunk 0 after its backward_input at"},
        Case{"F0 O0 R0 O0 A0", "position 3: offload of micro-batch 0, chunk 0 again"},
        Case{"F0 O0 R0 R0 A0", "position 3: reload of micro-batch 0, chunk 0 again"}})
    expect_config_error([&] { check_schedule(fixed({list_of(c.list)}), {}); }, {c.says});
}

TEST(Offload, FitsAnyScheduleIntoMemory) {
  for (const std::string& name : schedule_names()) {
    Schedule schedule = schedule_named(name);
    PipelineShape shape{4, schedule.chunks, 8, schedule.placement};
    auto lists = lists_of(schedule, shape);
    for (double cap : {1.5, 2., 3., 8.}) {
      SCOPED_TRACE(testing::Message() << name << " in " << cap);
      Budget budget{.cap = std::vector<double>(4, cap)};
      StageTimes slow = equal_stages(shape, {.copy = 3}),
                 fast = equal_stages(shape, {.copy = 1e-9});
      auto found = offloaded(lists, shape, slow, budget);
      ASSERT_EQ(found.size(), 4);
      check_schedule(fixed(found), shape);
      EXPECT_TRUE(within(budget, peak_memory(found, shape, budget.hold)));
      // Copies that take no time cost nothing, but for weights that must not wait.
      auto free = offloaded(lists, shape, fast, budget);
      double own = cost_of(simulate(lists, shape, fast), budget.objective);
      bool splits = std::ranges::count(lists[0], Action::backward_weight, &Action::kind) > 0;
      if (!splits) {
        EXPECT_LE(cost_of(simulate(free, shape, fast), budget.objective), own + 1e-6);
      }
      if (!within(budget, peak_memory(lists, shape, budget.hold))) continue;
      EXPECT_EQ(found, lists) << "nothing has to go";
    }
  }
}

TEST(Offload, HasNoRoomForLessThanOneActivation) {
  PipelineShape shape{.stages = 2, .micros = 2};
  Budget budget{.cap = {1, .5}};
  EXPECT_TRUE(
      offloaded(lists_of(gpipe, shape), shape, equal_stages(shape, {.copy = 1}), budget).empty());
}

TEST(Offload, IsSearchedAndKeptInTheFile) {
  PipelineShape shape{.stages = 4, .micros = 8};
  Budget budget{.cap = std::vector<double>(4, 1.5), .tries = 40};
  auto found = [&](double copy) {
    return synthesize(shape, equal_stages(shape, {.latency = .1, .copy = copy}), budget, 1);
  };
  Synthesis without = found(0), with = found(.5);
  EXPECT_LT(with.cost, .8 * without.cost);
  EXPECT_LE(found(50).cost, without.cost) << "what is too slow is left out";
  StageTimes times = equal_stages(shape, {.latency = .1, .copy = .5});
  ScheduleFile file{shape, times, budget, with.cost, with.bound, with.lists};
  ScheduleFile read = parse_schedule(schedule_json(file), "some.json");
  EXPECT_EQ(read.lists, with.lists);
  EXPECT_EQ(read.times[0].copy, .5);
  EXPECT_NE(passes(read.lists[0]), read.lists[0]);
}

constexpr int64_t rows = 3, width = 4;

/// Five products, of which some are computed again, and a number.
struct Net : nn::Module {
  std::vector<nn::Linear*> products;
  Net() {
    for (int i = 0; i < 6; ++i)
      products.push_back(&child<nn::Linear>("product" + std::to_string(i), width, width));
    materialize(cpu, f64, 1);
  }
  nn::Layers layers() {
    nn::Layers all;
    for (size_t i = 0; i < products.size(); ++i) {
      auto one = [p = products[i]](const Tensor& x) { return tanh((*p)(x)) * x; };
      all.push_back({"product", {products[i]}, [=](const Tensor& x, const nn::Batch& batch) {
                       const Tensor& in = i == 0 ? batch.input : x;
                       Tensor y = i % 3 == 1 ? recompute(one, in) : one(in);
                       return i % 3 == 2 ? one(gelu(y)) : y;
                     }});
    }
    all.push_back({"sum", {}, [](const Tensor& x, const nn::Batch&) { return sum(x * x); }});
    return all;
  }
};

struct Outcome {
  std::map<int, double> sums;
  std::map<std::string, std::vector<double>> gradients;
  std::vector<int> live;
  std::vector<int64_t> activations, offloaded;  ///< peaks of bytes
};

Outcome train(const Schedule& schedule, const PipelineShape& shape) {
  Outcome all;
  all.live.resize(size_t(shape.stages));
  all.activations = all.offloaded = std::vector<int64_t>(size_t(shape.stages));
  std::mutex lock;
  run_ranks(shape.stages, [&](Communicator& world) {
    Mesh mesh(world, {.pp = shape.stages});
    Net net;
    std::vector<int64_t> counts;
    for (int64_t v = 0, n = shape.virtual_stages(); v < n; ++v)
      counts.push_back((v + 1) * 7 / n - v * 7 / n);
    auto chunks = layers_of_stage(net.layers(), counts, shape, world.rank());
    Pipeline pipeline(mesh, chunks, {.schedule = schedule, .boundaries = {{{rows, width}, f64}}});
    auto batch = [](int m) {
      return nn::Batch{.input = full({rows, width}, .1 * (m + 1), f64, cpu)};
    };
    std::map<int, double> sums;
    memory::counter()->reset_peaks();
    for (int step = 0; step < 2; ++step)
      pipeline.train({.micros = shape.micros,
                      .batch = batch,
                      .output = [&](int m, const Tensor& y) { sums[m] = y.item(); }});
    std::lock_guard guard(lock);
    auto rank = size_t(world.rank());
    all.sums.merge(sums);
    all.live[rank] = pipeline.peak_live();
    all.activations[rank] = memory::counter()->peak(memory::activations);
    all.offloaded[rank] = memory::counter()->peak(memory::offloaded);
    for (auto* p : net.parameters())
      if (Tensor g = grad(p->value); g.defined()) all.gradients[p->name] = values(g);
  });
  EXPECT_EQ(autograd::live_nodes(), 0);
  return all;
}

TEST(Offload, ChangesNoBitOfAnySchedule) {
  int away = 0;  // stages that moved something
  for (const std::string& name : schedule_names())
    for (int stages : {1, 2, 3}) {
      Schedule schedule = schedule_named(name);
      PipelineShape shape{stages, schedule.chunks, 5, schedule.placement};
      SCOPED_TRACE((Case{name, shape}.str()));
      Budget budget{.cap = std::vector<double>(size_t(stages), 1.5)};
      auto lists = lists_of(schedule, shape);
      auto found = offloaded(lists, shape, equal_stages(shape, {.copy = .5}), budget);
      ASSERT_FALSE(found.empty());
      auto without = found;
      for (Actions& list : without) list = passes(list);
      Schedule with = fixed(found, schedule.placement, schedule.chunks);
      Outcome got = train(with, shape);
      Outcome expected = train(fixed(without, schedule.placement, schedule.chunks), shape);
      EXPECT_EQ(got.sums, expected.sums);  // bitwise
      EXPECT_EQ(got.gradients, expected.gradients);
      EXPECT_EQ(got.live, check_schedule(with, shape));
      for (size_t s = 0; s < found.size(); ++s) {
        EXPECT_EQ(expected.offloaded[s], 0);
        away += got.offloaded[s] > 0;
      }
    }
  EXPECT_GT(away, 30);
}

// Six micro-batches are live, and two where the others are in host memory: so many bytes fewer.
TEST(Offload, FreesTheMemoryOfItsActivations) {
  PipelineShape shape{.micros = 6};
  auto lists = lists_of(gpipe, shape);
  Budget budget{.cap = {2}};
  auto found = offloaded(lists, shape, equal_stages(shape, {.copy = .5}), budget);
  Outcome with = train(fixed(found), shape), without = train(fixed(lists), shape);
  EXPECT_EQ(with.live, std::vector{2});
  EXPECT_EQ(without.live, std::vector{6});
  EXPECT_EQ(std::ranges::count(found[0], Action::offload, &Action::kind), 6);
  int64_t each = with.offloaded[0] / 6;  // before the first backward
  EXPECT_EQ(without.activations[0] - with.activations[0], 4 * each);
}

}  // namespace triax::parallel::offload_test
