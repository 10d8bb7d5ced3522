#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <thread>

#include "tests/gpu_on_cpu/gate.h"
#include "tests/parallel/collective_cases.h"
#include "tests/support/expect_error.h"
#include "triax/core/check.h"
#include "triax/parallel/comm/gpu/device_comm.h"
#include "triax/parallel/comm/threads/thread_comm.h"

namespace triax::parallel {
namespace {

using gpu_on_cpu::Gate;
using namespace test;
using namespace cases;

Device gpu(int index) { return {Device::Kind::cuda, index}; }
Communicator::Seat together(int rank) { return {0, rank}; }

/// Ranks are threads; rank r has GPU r modulo `gpus`.
void run(int ranks, int gpus, const std::function<void(Communicator&)>& rank,
         ThreadOptions options = {}) {
  run_thread_ranks(
      ranks,
      [&](std::unique_ptr<Communicator> threads) {
        Device mine = gpu(threads->rank() % gpus);
        auto world = staged_on_host(std::move(threads), mine);
        rank(*world);
        world->check_usable();
      },
      options);
}

struct Shared {
  int ranks, gpus;
};
struct Staged : testing::TestWithParam<std::tuple<int, Shared>> {};

TEST_P(Staged, MovesTensorsOfGpus) {
  auto [number, shared] = GetParam();
  run(shared.ranks, shared.gpus, [&, number = number](Communicator& world) {
    EXPECT_STREQ(world.transport(), "threads by way of the host");
    collective_cases()[size_t(number)].run(world);
  });
}

INSTANTIATE_TEST_SUITE_P(HostStaged, Staged,
                         testing::Combine(testing::Range(0, int(collective_cases().size())),
                                          testing::Values(Shared{1, 1}, Shared{2, 2},
                                                          Shared{3, 1})),
                         [](const auto& i) {
                           return fmt::format("{}_on_{}_with_{}_gpus",
                                              collective_cases()[size_t(std::get<0>(i.param))].name,
                                              std::get<1>(i.param).ranks,
                                              std::get<1>(i.param).gpus);
                         });

/// A call queues its copies and returns, however far behind the GPU is.
TEST(HostStaged, ACallDoesNotWaitForTheGpu) {
  std::barrier hosts(2);
  run(2, 2, [&](Communicator& world) {
    Tensor x = full({1000}, 1, f32, world.device()), y = zeros({1000}, f32, world.device());
    Gate gate(world.device());
    fill_(x, world.rank() + 1);
    hosts.arrive_and_wait();
    int64_t waits = gpu_on_cpu::calls().host_waits;
    hosts.arrive_and_wait();
    Work a = world.all_reduce(x);
    Work b = world.rank() ? world.send(x, 0) : world.recv(y, 1);
    Work c = world.all_reduce(y);
    EXPECT_FALSE(a.done());
    poll();
    EXPECT_EQ(gpu_on_cpu::calls().host_waits, waits);
    hosts.arrive_and_wait();
    gate.open();
    a.wait(), b.wait(), c.wait();
    EXPECT_EQ(x.to_host<float>()[999], 3);
    world.barrier();
  });
}

/// Peers may wait for what this rank has only queued: it comes to it before it blocks elsewhere.
TEST(HostStaged, BlockingElsewhereStartsWhatIsQueued) {
  auto rank = [](Communicator& world) {
    auto other = world.split(together, "other");
    Tensor x = full({10}, 1, f32, world.device()), flag = zeros({1}, f32, cpu);
    Gate gate(world.device());
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      gate.open();
    });
    Work w = other->all_reduce(x);
    if (world.rank() == 1) w.wait();
    world.all_reduce(flag).wait();  // of the CPU; rank 1 comes to it after the other
    w.wait();
    opener.join();
    EXPECT_EQ(x.to_host<float>()[9], 2);
  };
  run(2, 2, rank, {.time_limit = 10});
}

TEST(HostStaged, TensorsOfTheCpuKeepTheirPlaceAmongTheOthers) {
  run(2, 1, [](Communicator& world) {
    for (int k = 0; k < 20; ++k) {
      Tensor x = full({100 + k}, 1, f32, world.device()), y = full({50 + k}, 2, f64, cpu);
      Work a = world.all_reduce(x), b = world.all_reduce(y);
      b.wait(), a.wait();
      EXPECT_EQ(x.to_host<float>()[0], 2);
      EXPECT_EQ(y.to_host<double>()[0], 4);
    }
  });
}

TEST(HostStaged, ErrorsAreThoseOfTheHost) {
  auto mismatched = [] {
    run(2, 2, [](Communicator& world) {
      Tensor x = zeros({6}, f32, world.device());
      if (world.rank()) world.all_reduce(x).wait();
      else world.broadcast(x, 0).wait();
    });
  };
  expect_error(mismatched,
               {"ranks disagree, group world {0, 1}, call 1", "all_reduce(sum, f32[6])",
                "broadcast(f32[6], root 0)", "tests/gpu_on_cpu/staged_test.cpp:"},
               Exit::mismatch);
  auto late = [] {
    run(2, 2,
        [](Communicator& world) {
          Tensor x = zeros({6}, f32, world.device());
          if (world.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(400));
          else world.all_reduce(x).wait();
        },
        {.time_limit = 0.1});
  };
  expect_error(late, {"all_reduce(sum, f32[6])", "for 0.1 s", "waiting for rank 1"},
               Exit::peer_lost);
  auto unwinding = [] {
    run(2, 2, [](Communicator& world) {
      Tensor x = zeros({6}, f32, world.device());
      if (world.rank()) {
        Gate gate(world.device());
        Work started = world.recv(x, 0), queued = world.all_reduce(x);
        fail(Exit::io, "while in flight");
      }
      world.all_reduce(x).wait();
    });
  };
  expect_error(unwinding, {"while in flight"}, Exit::io);
  auto elsewhere = [] {
    run(2, 2, [](Communicator& world) {
      world.all_reduce(zeros({6}, f32, gpu(1 - world.rank()))).wait();
    });
  };
  expect_error(elsewhere, {"all_reduce: [6] f32 on cuda:", "expected a tensor on cuda:"});
}

}  // namespace
}  // namespace triax::parallel
