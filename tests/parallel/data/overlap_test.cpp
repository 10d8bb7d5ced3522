// Transfers go on beside computation: over a link of known speed, with layers of known duration, a
// step takes about the larger of the two, not their sum.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/support/link_comm.h"
#include "tests/support/slow_layer.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/parallel/data/data_parallel.h"

namespace triax::parallel::overlap_test {

using namespace test;

constexpr int layers = 6;
constexpr int64_t elements = 1024;  // of each layer, in a bucket of its own

/// No more than this times what theory says, for the link itself.
constexpr double slack = 1.3;

// -- The model itself.

/// Seconds until two ranks have waited for `calls` sums of 1000 bytes, all posted at once: those of
/// the rank that left the barrier first.
double time_of_sums(int calls, LinkSpeed speed, double late = 0) {
  std::array<double, 2> times{};
  run_linked_ranks(2, speed, [&](Communicator& world) {
    Tensor x = full({250}, 1, f32, cpu), y = full({250}, 2, f32, cpu);
    world.barrier();
    double mine = seconds([&] {
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(late));
      std::vector<Work> works;
      for (int i = 0; i < calls; ++i) works.push_back(world.all_reduce(i == 0 ? x : y));
      for (Work& w : works) w.wait();
    });
    for (double v : values(x)) ASSERT_EQ(v, 2);
    times[size_t(world.rank())] = mine;
  });
  return std::ranges::max(times);
}

TEST(LinkTest, TransfersTakeLatencyAndBytesOverBandwidth) {
  auto expect = [](double expected, const std::function<double()>& measure) {
    double got = least(expected * slack, measure);
    EXPECT_GE(got, expected - 1e-6);
    EXPECT_LE(got, expected * slack);
  };
  LinkSpeed slow{.latency = 0.02, .bandwidth = 1000 / 0.03};
  expect(0.05, [&] { return time_of_sums(1, slow); });
  expect(0.10, [&] { return time_of_sums(2, slow); });        // one behind the other
  expect(0.11, [&] { return time_of_sums(1, slow, 0.06); });  // from when the last is there
  EXPECT_LT(least(0.02, [] { return time_of_sums(2, {}); }), 0.02);
}

/// Groups have wires of their own, and what is under way on one of them holds nobody up.
TEST(LinkTest, GroupsDoNotWaitForEachOther) {
  auto measure = [] {
    double time = 0;
    run_linked_ranks(2, {.latency = 0.04}, [&](Communicator& world) {
      auto seat = [](int r) { return Communicator::Seat{0, r}; };
      auto up = world.split(seat, "up"), down = world.split(seat, "down");
      Tensor mine = full({3}, world.rank(), f32, cpu), theirs = full({3}, -1, f32, cpu);
      int rank = world.rank(), other = 1 - rank;
      world.barrier();
      double taken = seconds([&] {
        Work to = (rank == 0 ? up : down)->send(mine, other);
        Work from = (rank == 0 ? down : up)->recv(theirs, other);
        EXPECT_FALSE(from.done());
        from.wait();
        to.wait();
      });
      EXPECT_EQ(theirs.narrow(0, 0, 1).item(), other);
      if (rank == 0) time = taken;
    });
    return time;
  };
  double got = least(0.04 * slack, measure);
  EXPECT_GE(got, 0.04 - 1e-6);
  EXPECT_LE(got, 0.04 * slack);
}

// -- Gradients are summed while backward runs.

/// What each layer's backward takes, and what the sum of its gradient does on the link.
struct Pace {
  double compute, link;
};

/// Bytes that a rank of two sends for a layer: an all-reduce, or a reduce-scatter.
double bytes_of(Zero zero) { return 4 * elements * (zero == Zero::off ? 1 : 0.5); }

double time_of_backward(const Pace& pace, Zero zero) {
  double time = 0;
  run_linked_ranks(2, {.bandwidth = bytes_of(zero) / pace.link}, [&](Communicator& world) {
    SlowModel model(layers, {.weight = pace.compute}, elements);
    DataParallel data(model, world, {.zero = zero, .buckets = {.first = 1, .other = 1}});
    Tensor y = model();
    world.barrier();
    double mine = seconds([&] {
      data.begin();
      backward(y);
      data.finish();
    });
    for (auto& slot : data.slots())
      for (double g : values(slot.grad)) ASSERT_EQ(g, 2);
    if (world.rank() == 0) time = mine;
  });
  return time;
}

// The first layer's computation and the last one's sum have nothing beside them.
TEST(OverlapTest, AStepTakesTheLargerOfComputeAndLink) {
  for (Zero zero : {Zero::off, Zero::optimizer, Zero::gradients})
    for (auto& pace : {Pace{0.02, 0.02}, Pace{0.03, 0.015}, Pace{0.015, 0.03}}) {
      double larger = std::max(pace.compute, pace.link), other = std::min(pace.compute, pace.link);
      double expected = layers * larger + other, sum = layers * (larger + other);
      double most = (expected + sum) / 2;  // 19 to 36 % more
      double got = least(most, [&] { return time_of_backward(pace, zero); });
      SCOPED_TRACE(fmt::format("ZeRO {}, a layer {} s, its sum {} s: {} s, one after the other {}",
                               int(zero), pace.compute, pace.link, got, sum));
      EXPECT_GE(got, expected * 0.98);
      EXPECT_LE(got, most);
    }
}

// -- ZeRO-1 and 2 gather new weights while the next forward runs.

double time_of_publishing(Zero zero, const Pace& pace) {
  double time = 0;
  run_linked_ranks(2, {.bandwidth = bytes_of(zero) / pace.link}, [&](Communicator& world) {
    Mesh mesh(world, {.dp = 2});
    SlowModel model(layers, {.forward = pace.compute}, elements);
    std::vector<nn::Layers> chunks{model.layers()};
    DataParallel data(model, chunks, mesh, {.zero = zero, .buckets = {.first = 1, .other = 1}});
    for (auto& slot : data.slots()) fill_(slot.weight, 7);  // as an update does
    world.barrier();
    double mine = seconds([&] {
      data.publish();
      Tensor x;
      for (auto& layer : chunks[0]) x = layer.run(x, {});
    });
    data.await_weights();
    for (auto* p : model.parameters())
      for (double w : values(p->value)) ASSERT_EQ(w, 7) << p->name;
    if (world.rank() == 0) time = mine;
  });
  return time;
}

// Nothing is beside the gathering of the first layer's weights, nor beside the last one's work.
TEST(OverlapTest, NewWeightsAreGatheredBesideTheNextForward) {
  for (Zero zero : {Zero::optimizer, Zero::gradients})
    for (auto& pace : {Pace{0.02, 0.02}, Pace{0.03, 0.015}, Pace{0.015, 0.03}}) {
      double larger = std::max(pace.compute, pace.link), other = std::min(pace.compute, pace.link);
      double expected = layers * larger + other, sum = layers * (larger + other);
      double most = (expected + sum) / 2;
      double got = least(most, [&] { return time_of_publishing(zero, pace); });
      SCOPED_TRACE(fmt::format("ZeRO {}, a layer {} s, its weights {} s: {} s", int(zero),
                               pace.compute, pace.link, got));
      EXPECT_GE(got, expected * 0.98);
      EXPECT_LE(got, most);
    }
}

// -- Whole steps of ZeRO-1 over a slow network.

struct Network {
  int ranks, layers;
  int64_t elements;  ///< of each layer
  SlowLayer::Times times;
  LinkSpeed link;
  /// Returns the link's seconds to gather a layer's weights, or to sum its gradient.
  double of_a_layer() const {
    return link.latency + 4. * double(elements) * (ranks - 1) / ranks / link.bandwidth;
  }
};

struct Step {
  double taken, worked;  ///< seconds; layers sleep longer than they are told to
};

/// Returns a step in the middle of a run, the mean of three.
Step step_over(const Network& n) {
  Step step{};
  run_linked_ranks(n.ranks, n.link, [&](Communicator& world) {
    Mesh mesh(world, {.dp = n.ranks});
    SlowModel model(n.layers, n.times, n.elements);
    std::vector<nn::Layers> chunks{model.layers()};
    DataParallel data(model, chunks, mesh,
                      {.zero = Zero::optimizer, .buckets = {.first = 1, .other = 1}});
    auto take = [&] {
      data.begin();
      Tensor x;
      for (auto& layer : chunks[0]) x = layer.run(x, {});
      backward(x);
      data.finish();
      data.publish();
    };
    take();
    world.barrier();
    double before = model.worked(), mine = seconds([&] {
                                      for (int i = 0; i < 3; ++i) take();
                                    });
    data.await_weights();
    if (world.rank() == 0) step = {mine / 3, (model.worked() - before) / 3};
  });
  return step;
}

/// The least time that a step waits for the network, of up to eight.
double least_exposed(const Network& n, double enough) {
  return least(enough, [&] {
    Step step = step_over(n);
    fmt::print("a step of {:.1f} ms, {:.1f} of them work; a layer's transfer takes {:.1f} ms\n",
               1e3 * step.taken, 1e3 * step.worked, 1e3 * n.of_a_layer());
    return step.taken - step.worked;
  });
}

// Nothing is beside the last gradient's sum and the first weights' gathering.
TEST(OverlapTest, AStepOfZeRO1TakesTheLongerOfComputeAndNetwork) {
  Network n{.ranks = 2,
            .layers = 10,
            .elements = 1 << 18,
            .times = {.forward = 0.01, .input = 0.01, .weight = 0.01},
            .link = {.latency = 1e-3, .bandwidth = 1e9 / 8}};  // 5.2 ms
  double bound = 2 * n.of_a_layer(), most = bound + 0.03 * 10 * 0.03;
  EXPECT_LE(least_exposed(n, most), 2 * most) << "one after the other: " << 10 * bound;
}

TEST(OverlapTest, FortyEightLayersOnEightRanksExposeNoGathering) {
  Network n{.ranks = 8,
            .layers = 48,
            .elements = 1024,
            .times = {.forward = 0.005, .input = 0.005, .weight = 0.005},
            .link = {.latency = 1e-3, .bandwidth = 1e6}};  // 4.6 ms
  double bound = 2 * n.of_a_layer(), most = bound + 0.03 * 48 * 0.015;
  EXPECT_LE(least_exposed(n, most), 4 * most) << "one after the other: " << 48 * bound;
}

// -- ZeRO-3 gathers the weights of the next layer while one is at work.

struct Gathering {
  double forward, step;  ///< seconds
};

constexpr double work = 0.015, gather = 0.012;  // of one layer; its two gradients take `work` each

Gathering time_of_gathering(DataParallelOptions::Prefetch prefetch) {
  Gathering time{};
  run_linked_ranks(2, {.bandwidth = bytes_of(Zero::parameters) / gather}, [&](Communicator& world) {
    Mesh mesh(world, {.dp = 2});
    SlowModel model(layers, {.forward = work, .input = work, .weight = work}, elements);
    std::vector<nn::Layers> chunks{model.layers()};
    DataParallel data(model, chunks, mesh, {.zero = Zero::parameters, .prefetch = prefetch});
    Gathering mine{};
    Tensor x;
    world.barrier();
    data.begin();
    mine.forward = seconds([&] {
      for (auto& layer : chunks[0]) x = layer.run(x, {});
    });
    mine.step = mine.forward + seconds([&] {
                  backward(x);
                  data.finish();
                });
    if (world.rank() == 0) time = mine;
  });
  return time;
}

TEST(OverlapTest, WeightsAreGatheredBesideTheLayerAtWork) {
  using Prefetch = DataParallelOptions::Prefetch;
  // Nothing is beside the first gathering of a pass, nor beside the last sum of gradients.
  Gathering ahead{layers * work + gather, 3 * layers * work + 3 * gather};
  // Sums of gradients go on beside the next layer, but its weights wait for them on the wire.
  Gathering alone{layers * (work + gather), layers * (3 * work + 3 * gather)};
  Gathering off = time_of_gathering(Prefetch::off);
  EXPECT_GE(off.forward, alone.forward * 0.98);
  EXPECT_GE(off.step, alone.step * 0.98);

  Gathering most{(ahead.forward + alone.forward) / 2, (ahead.step + alone.step) / 2}, next{1, 1};
  least(1, [&] {
    Gathering g = time_of_gathering(Prefetch::next);
    next = {std::min(next.forward, g.forward), std::min(next.step, g.step)};
    return std::max(next.forward / most.forward, next.step / most.step);
  });
  EXPECT_GE(next.forward, ahead.forward * 0.98);
  EXPECT_LE(next.forward, most.forward);
  EXPECT_GE(next.step, ahead.step * 0.98);
  EXPECT_LE(next.step, most.step);
}

}  // namespace triax::parallel::overlap_test
