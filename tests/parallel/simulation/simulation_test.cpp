// Ranks on virtual clocks: what transfers take, that times repeat, and what a simulated step has to
// do with a planned one.
#include "triax/parallel/simulation/simulation.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "triax/parallel/comm/meta_comm.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/plan/step_time.h"

namespace triax::parallel::simulation_test {

using namespace test;

constexpr double rate = 1e9, latency = 1e-3;

/// Returns nodes of two ranks. Kernels take what their FLOP say, 1e9 of them a second.
Hardware simple(const char* device = "cuda") {
  Hardware h{.name = "simple", .device = device};
  h.fp32 = h.low = 1e9, h.products = h.attention = 1;
  h.bandwidth = INFINITY, h.kernels = h.update = 1;
  h.link = rate, h.network = rate, h.link_part = h.network_part = 1;
  h.latency = latency, h.per_node = 2;
  return h;
}

void work(double seconds) { meta_work().products += seconds * 1e9, ++meta_work().matmuls; }
Tensor bytes(int64_t count) { return empty({count}, u8, meta_device); }

/// Runs a body on each of some virtual ranks; returns the times at which they ended.
std::vector<double> run_virtual(
    int ranks, const Hardware& h,
    const std::function<void(Communicator& world, VirtualClock& clock)>& body,
    const Injected& injected = {}) {
  std::vector<double> ends(static_cast<size_t>(ranks));
  VirtualLinks links(ranks, 2);
  run_thread_ranks(ranks, [&](std::unique_ptr<Communicator> threads) {
    auto rank = size_t(threads->rank());
    VirtualClock clock(h, f32, 1);
    links.take_turn();
    try {
      VirtualComm world(std::move(threads), {clock, links, injected});
      body(world, clock);
    } catch (...) {
      links.leave(std::current_exception());
      throw;
    }
    ends[rank] = clock.now();
    links.leave();
  });
  return ends;
}

// A ring of two moves half of the bytes twice.
TEST(VirtualComm, ACollectiveBeginsWithItsLastRank) {
  auto body = [](Communicator& world, VirtualClock&) {
    work(0.01 * (world.rank() + 1));
    Work sum = world.all_reduce(bytes(1'000'000));
    work(1e-4);  // beside it
    sum.wait();
    sum.wait();
  };
  for (double end : run_virtual(2, simple(), body)) EXPECT_NEAR(end, 0.02 + latency + 1e-3, 1e-9);
  Injected slow{.slow_links = {{0, 10}}};
  for (double end : run_virtual(2, simple(), body, slow))
    EXPECT_NEAR(end, 0.02 + 10 * (latency + 1e-3), 1e-9);
}

// Cores of a host move the bytes: kernels do not go on beside it.
TEST(VirtualComm, RanksOfAHostMoveTheBytesThemselves) {
  auto ends = run_virtual(2, simple("cpu"), [](Communicator& world, VirtualClock&) {
    Work sum = world.all_reduce(bytes(1'000'000));
    work(0.05);
    sum.wait();
  });
  for (double end : ends) EXPECT_NEAR(end, 0.05 + latency + 1e-3, 1e-9);
}

TEST(VirtualComm, MessagesPassOneAfterTheOther) {
  auto ends = run_virtual(2, simple(), [](Communicator& world, VirtualClock& clock) {
    if (world.rank() == 0) {
      Work first = world.send(bytes(1'000'000), 1), second = world.send(bytes(1'000'000), 1);
      return;
    }
    Tensor x = bytes(1'000'000), y = bytes(1'000'000);
    Work first = world.recv(x, 0), second = world.recv(y, 0);
    first.wait();
    EXPECT_NEAR(clock.now(), latency + 1e-3, 1e-9);
    second.wait();
  });
  EXPECT_NEAR(ends[0], 0, 1e-12);
  EXPECT_NEAR(ends[1], 2 * (latency + 1e-3), 1e-9);
}

// Two ranks of a node share its card.
TEST(VirtualComm, OtherNodesAreBehindTheNetwork) {
  auto ends = run_virtual(4, simple(), [](Communicator& world, VirtualClock&) {
    Tensor x = bytes(1'000'000);
    if (world.rank() == 0) world.send(x, 3).wait();
    if (world.rank() == 3) world.recv(x, 0).wait();
  });
  EXPECT_NEAR(ends[3], latency + 2e-3, 1e-9);
}

TEST(VirtualComm, RanksThatDisagreeOrAllWaitAreErrors) {
  auto differ = [](Communicator& world, VirtualClock&) {
    world.all_reduce(bytes(4 + world.rank())).wait();
  };
  EXPECT_NE(error_of([&] { run_virtual(2, simple(), differ); }, Exit::mismatch)
                .find("all_reduce(sum, u8[5])"),
            std::string::npos);
  auto circle = [](Communicator& world, VirtualClock&) {
    Tensor x = bytes(1), y = bytes(1);
    int other = 1 - world.rank();
    world.recv(x, other).wait();
    world.send(y, other).wait();
  };
  std::string text = error_of([&] { run_virtual(2, simple(), circle); }, Exit::mismatch);
  EXPECT_TRUE(text.starts_with("all ranks wait for each other:\n  rank ")) << text;
  EXPECT_NE(text.find("rank 1: recv"), std::string::npos) << text;
}

TrainOptions options(const MeshShape& mesh) {
  auto o = tiny_options(mesh);
  o.step.micro_batch = 4, o.step.global_batch = 32 * mesh.replicas();
  return o;
}

std::vector<SimulatedRank> simulated(TrainOptions o, const Injected& injected = {},
                                     const char* hardware = "h100") {
  resolve(o, o.step.mesh.size());
  return simulate(
      task_of(),
      {.train = o, .hardware = hardware_named(hardware), .injected = injected, .trace = true});
}

TEST(Simulation, RepeatsInEveryDigit) {
  auto o = options({.dp = 2, .pp = 2, .tp = 2});
  o.step.zero = Zero::gradients, o.step.schedule = "zb-h1";
  auto a = simulated(o), b = simulated(o);
  for (size_t r = 0; r < a.size(); ++r) {
    EXPECT_EQ(a[r].seconds, b[r].seconds);
    EXPECT_EQ(a[r].waits, b[r].waits);
    EXPECT_EQ(a[r].events, b[r].events);
  }
}

// Each rank sends and holds what it does alone, with peers that do not exist.
TEST(Simulation, SendsAndHoldsWhatIsRehearsed) {
  for (MeshShape mesh :
       {MeshShape{.dp = 4}, {.dp = 2, .pp = 2}, {.tp = 4}, {.dp = 2, .pp = 2, .tp = 2}})
    for (Zero zero : {Zero::off, Zero::parameters}) {
      auto o = options(mesh);
      o.step.zero = zero, o.step.sequence_parallel = mesh.tp > 1;
      auto ranks = simulated(o);
      resolve(o, mesh.size());
      Task task = task_of();
      MetaTarget target(Device::Kind::cuda);
      Subject subject = subject_of(task.build, shaped_like(task, 4), o.step);
      for (int r = 0; r < mesh.size(); ++r) {
        MetaComm alone(mesh.size(), r);
        Demand got = ranks[size_t(r)].demand, want = rehearse(subject, o.step, alone);
        auto text = [](const Demand& d) {
          return fmt::format("tp {} {}, dp {} {}, links {} {}", d.tp.calls, d.tp.bytes, d.dp.calls,
                             d.dp.bytes, d.links.calls, d.links.bytes);
        };
        EXPECT_EQ(text(got), text(want)) << str(mesh) << " ZeRO " << int(zero) << " rank " << r;
        EXPECT_EQ(got.peak, want.peak) << str(mesh) << " rank " << r;
      }
    }
}

/// Eight blocks, and a head that takes as long as `classes` say.
template <int64_t classes = 4> struct WideNet : nn::Sequence {
  struct Block : nn::Module {
    Block(const TensorParallel& tp, int64_t width)
        : up(child<ColumnLinear>("up", width, 4 * width, tp, SplitLinearOptions{.std = 0.3})),
          down(child<RowLinear>("down", 4 * width, width, tp, SplitLinearOptions{.std = 0.3})) {}
    Tensor operator()(const Tensor& x) const { return x + down(relu(up(x))); }
    ColumnLinear& up;
    RowLinear& down;
  };
  explicit WideNet(const TensorParallel& tp) {
    for (int i = 0; i < 8; ++i) add<Block>(fmt::format("block{}", i), tp, 4096);
    add<ClassHead>("head", classes, 4096, tp, VocabularyOptions{.std = 0.3});
  }
};

template <class Model> Task wide_task() {
  return {.build = [](auto& tp) { return std::make_unique<Model>(tp); },
          .samples = std::make_shared<nn::TensorSamples>(zeros({4, 4096}, f32, cpu),
                                                         zeros({4}, i32, cpu))};
}

// Where nothing hides what is sent and stages are alike, both know the same.
TEST(Simulation, TakesAsLongAsPlanned) {
  Task task = wide_task<WideNet<>>();
  Hardware h = hardware_named("h100");
  for (MeshShape mesh : {MeshShape{}, {.dp = 8}, {.pp = 2}, {.pp = 4}, {.dp = 2, .pp = 2}}) {
    TrainOptions o{.step = {.mesh = mesh, .micro_batch = 8192, .dtype = bf16}};
    o.step.global_batch = 16 * o.step.micro_batch * mesh.replicas();
    resolve(o, mesh.size());
    double seconds = step_seconds(simulate(task, {.train = o, .hardware = h}));
    EXPECT_NEAR(StepTimes(task, h)(o.step).total() / seconds, 1, 0.02) << str(mesh);
  }
}

// The last stage has a head beside its blocks: schedules in little memory suffer most.
TEST(Simulation, TakesAsLongAsPlannedWhereStagesDiffer) {
  Task task = wide_task<WideNet<50'000>>();
  Hardware h = hardware_named("h100");
  for (auto& schedule : schedule_names())
    for (int pp : {2, 4})
      for (auto recompute : {Recompute::off, Recompute::block}) {
        TrainOptions o{.step = {.mesh = {.pp = pp}, .micro_batch = 8192, .dtype = bf16}};
        o.step.global_batch = 24 * o.step.micro_batch;
        o.step.schedule = schedule, o.step.recompute = recompute;
        resolve(o, pp);
        double seconds = step_seconds(simulate(task, {.train = o, .hardware = h}));
        EXPECT_NEAR(StepTimes(task, h)(o.step).total() / seconds, 1, 0.025) << schedule << pp;
      }
}

TEST(Simulation, OthersWaitForASlowRank) {
  auto o = options({.dp = 4});
  double alone = step_seconds(simulated(o));
  auto ranks = simulated(o, {.slow_ranks = {{2, 3}}});
  EXPECT_GT(step_seconds(ranks), 2 * alone);
  EXPECT_LT(ranks[2].waited(), 0.5 * ranks[0].waited());
}

TEST(Simulation, ARankThatDiesIsNamed) {
  std::string text = error_of(
      [&] {
        simulated(options({.dp = 2, .pp = 2}), {.deaths = {{3, 0}}});
      },
      Exit::peer_lost);
  EXPECT_TRUE(text.starts_with("rank 3 ends at 0.000 s, before ")) << text;
}

}  // namespace triax::parallel::simulation_test
