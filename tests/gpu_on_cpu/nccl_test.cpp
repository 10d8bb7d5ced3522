#include "tests/gpu_on_cpu/libraries/nccl.h"

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "tests/gpu_on_cpu/gate.h"
#include "tests/gpu_on_cpu/runtime.h"
#include "tests/parallel/collective_cases.h"
#include "tests/support/expect_error.h"
#include "triax/core/check.h"
#include "triax/parallel/comm/gpu/nccl_comm.h"
#include "triax/parallel/comm/launch/world.h"

namespace triax::parallel {
namespace {

using gpu_on_cpu::Gate;
using namespace test;
using namespace cases;
namespace nccl = gpu_on_cpu::nccl;

Device gpu(int index) { return {Device::Kind::cuda, index}; }
Communicator::Seat together(int rank) { return {0, rank}; }

struct Run {
  int ranks = 2;
  double time_limit = 60;
  nccl::Behaviour library = {};
  std::vector<Error>* lost = nullptr;  ///< what the watching threads said
};

/// Ranks are threads, each with a GPU of its own.
void run(const Run& r, const std::function<void(Communicator&)>& rank) {
  nccl::behave(r.library);
  std::mutex mutex;
  auto lost = [&](const Error& error) {
    std::lock_guard guard(mutex);
    if (r.lost) r.lost->push_back(error);
  };
  ::setenv("TRIAX_CALLS_DIR", testing::TempDir().c_str(), 1);
  prepare_nccl();
  run_thread_ranks(r.ranks,
                   [&](std::unique_ptr<Communicator> threads) {
                     Device mine = gpu(threads->rank());
                     auto world = nccl_world(std::move(threads), mine, {.lost = lost});
                     rank(*world);
                     world->check_usable();
                   },
                   {.time_limit = r.time_limit});
}

std::vector<nccl::Called> calls_of(int world_rank) {
  std::vector<nccl::Called> mine;
  for (auto& c : nccl::calls())
    if (c.world_rank == world_rank) mine.push_back(c);
  return mine;
}

/// But what NCCL does not promise: nccl_comm.h.
std::vector<CollectiveCase> cases() {
  auto all = collective_cases();
  std::erase_if(all, [](auto& c) { return c.name == "rank_order" || c.name == "nan_wins"; });
  return all;
}

struct OverNccl : testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(OverNccl, MovesTensorsOfGpus) {
  auto [number, ranks] = GetParam();
  CollectiveCase c = cases()[size_t(number)];
  run({.ranks = ranks}, [&](Communicator& world) {
    EXPECT_STREQ(world.transport(), "NCCL");
    c.run(world);
  });
  if (ranks > 1) {
    EXPECT_GT(nccl::calls().size(), 2u * size_t(ranks));
  }
  EXPECT_EQ(nccl::alive(), 0);
  EXPECT_EQ(nccl::aborted(), 0);
}

INSTANTIATE_TEST_SUITE_P(NcclComm, OverNccl,
                         testing::Combine(testing::Range(0, int(cases().size())),
                                          testing::Values(1, 2, 4)),
                         [](const auto& i) {
                           return fmt::format("{}_on_{}",
                                              cases()[size_t(std::get<0>(i.param))].name,
                                              std::get<1>(i.param));
                         });

/// What is on the CPU goes over the communicator below.
TEST(NcclComm, TensorsOfTheCpuGoPastNccl) {
  run({}, [](Communicator& world) {
    size_t before = calls_of(world.rank()).size();
    Tensor x = full({100}, 1, f32, cpu);
    world.all_reduce(x).wait();
    world.barrier();
    EXPECT_EQ(x.to_host<float>()[99], 2);
    EXPECT_EQ(calls_of(world.rank()).size(), before);
  });
}

/// Neither a call nor a wait lets the host wait; the GPU has the values when it comes to them, and
/// goes on with the result.
TEST(NcclComm, OnlyTheGpuWaits) {
  std::barrier hosts(2);
  run({}, [&](Communicator& world) {
    Tensor x = full({1000}, 1, f32, world.device());
    Gate gate(world.device());
    fill_(x, 5);
    hosts.arrive_and_wait();
    int64_t waits = gpu_on_cpu::calls().host_waits;
    hosts.arrive_and_wait();
    Work a = world.all_reduce(x);
    a.wait();
    Tensor y = clone(x);
    EXPECT_EQ(gpu_on_cpu::calls().host_waits, waits);
    hosts.arrive_and_wait();
    gate.open();
    EXPECT_EQ(y.to_host<float>()[999], 10);
    world.barrier();
  });
}

/// The same on two communicators side by side: the one whose values come later holds up none.
TEST(NcclComm, CommunicatorsGoOnSideBySide) {
  run({}, [](Communicator& world) {
    auto up = world.split(together, "up"), down = world.split(together, "down");
    Tensor x = full({10}, world.rank(), f32, world.device()), y = zeros_like(x);
    // Each sends before it receives: on one stream neither would come to its receive.
    bool first = world.rank() == 0;
    Work sent = (first ? *up : *down).send(x, 1 - world.rank());
    (first ? *down : *up).recv(y, 1 - world.rank()).wait();
    EXPECT_EQ(y.to_host<float>()[0], 1 - world.rank());
    sent.wait();
  });
}

/// From here on the library does something else.
void behave_together(Communicator& world, const nccl::Behaviour& b) {
  world.barrier();
  if (world.rank() == 0) nccl::behave(b);
  world.barrier();
}

/// Transfers hold processors while they wait for their peers, and start in no order: those of all
/// groups of a rank start beside each other.
TEST(NcclComm, TransfersOfAllGroupsFitBesideEachOther) {
  constexpr int sums = 6, all = sums + 8;
  run({}, [](Communicator& world) {
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int i = 0; i < all; ++i)
      groups.push_back(world.split(together, "group",
                                   i < sums ? Traffic{} : Traffic{.part = 32, .messages = true}));
    (void)zeros({1}, f32, world.device()).to_host<float>();
    behave_together(world, {.hang = true});
    Tensors x;
    std::vector<Work> works;
    for (int i = 0; i < all; ++i) x.push_back(full({10}, world.rank() + i, f32, world.device()));
    for (int i = 0; i < all; ++i) {
      auto at = size_t(i);
      if (i < sums) works.push_back(groups[at]->all_reduce(x[at]));
      else if (i % 2 == world.rank()) works.push_back(groups[at]->send(x[at], 1 - world.rank()));
      else works.push_back(groups[at]->recv(x[at], 1 - world.rank()));
    }
    for (int i = 0; i < 500 && nccl::holding() < 2 * all; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(nccl::holding(), 2 * all);
    behave_together(world, {});
    for (auto& w : works) w.wait();
    for (int i = 0; i < all; ++i)
      EXPECT_EQ(x[size_t(i)].to_host<float>()[9], i < sums ? 2 * i + 1 : i + i % 2) << i;
  });
}

/// What any two ranks share, they are asked for in one order.
TEST(NcclComm, RanksLaunchInOneOrder) {
  run({.ranks = 4}, [](Communicator& world) {
    auto dp = world.split([](int r) { return Communicator::Seat{r % 2, r}; }, "dp");
    auto tp = world.split([](int r) { return Communicator::Seat{r / 2, r}; }, "tp");
    Tensor x = zeros({64}, f32, world.device()), y = zeros({32}, f32, world.device());
    std::vector<Work> works;
    for (int layer = 0; layer < 3; ++layer) {
      tp->all_reduce(x).wait();
      works.push_back(dp->reduce_scatter(x, y));
      works.push_back(world.all_reduce(y));
    }
    while (!works.empty()) works.pop_back();  // in another order than they were started
  });
  auto shared = [](int a, int b) {
    std::vector<std::pair<std::string, std::string>> order;
    bool same_tp = a / 2 == b / 2, same_dp = a % 2 == b % 2;
    for (auto& c : calls_of(a))
      if (c.comm == "world" || (c.comm == "tp" && same_tp) || (c.comm == "dp" && same_dp))
        if (c.function != "finalize") order.push_back({c.comm, c.function});
    return order;
  };
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b) {
      EXPECT_EQ(shared(a, b), shared(b, a)) << a << ", " << b;
      EXPECT_GE(shared(a, b).size(), 1u + 2u + 3u) << a << ", " << b;
    }
  EXPECT_EQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), nullptr);
  EXPECT_STREQ(std::getenv("CUDA_MODULE_LOADING"), "EAGER");
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
}

TEST(NcclComm, AStuckTransferIsNamedAndAborted) {
  std::vector<Error> lost;
  auto stuck = [&] {
    run({.time_limit = 0.2, .lost = &lost}, [](Communicator& world) {
      auto part = world.split(together, "part");
      Tensor x = zeros({4}, f32, world.device());
      part->all_reduce(x).wait();
      (void)x.to_host<float>();
      behave_together(world, {.hang = true});
      part->all_reduce(x).wait();
      (void)x.to_host<float>();  // returns when the transfer is aborted
      part->all_reduce(x).wait();
      ADD_FAILURE() << "went on";
    });
  };
  expect_error(
      stuck,
      {"all_reduce(sum, f32[4])", "no progress in group part {0, 1} for 0.2 s", "seen by rank ",
       "at its call 2 there", "tests/gpu_on_cpu/nccl_test.cpp:", "Calls of all: ", "TRIAX_TIMEOUT"},
      Exit::peer_lost);
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(nccl::alive(), 0);
  EXPECT_EQ(nccl::aborted(), 4);
}

TEST(NcclComm, AMissingRankIsAStuckTransfer) {
  std::vector<Error> lost;
  auto missing = [&] {
    run({.time_limit = 0.2, .lost = &lost}, [](Communicator& world) {
      Tensor x = zeros({4}, f32, world.device());
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
      if (world.rank() == 1) return;
      Work w = world.all_reduce(x);
      while (!w.done()) std::this_thread::yield();
    });
  };
  expect_error(missing, {"no progress in group world {0, 1}", "seen by rank 0"}, Exit::peer_lost);
  EXPECT_EQ(lost.size(), 1u);
  EXPECT_EQ(nccl::alive(), 0);
}

TEST(NcclComm, WhatNcclSaysMeanwhileEndsIt) {
  auto failing = [](ncclResult_t result) {
    run({}, [&](Communicator& world) {
      Tensor x = zeros({4}, f32, world.device());
      if (result == ncclInvalidUsage) {  // of another size: NCCL would see nothing
        world.all_reduce(world.rank() ? x : x.narrow(0, 0, 2)).wait();
      } else {
        (void)x.to_host<float>();  // NCCL has connected the two
        Gate gate(world.device());
        Work w = world.all_reduce(x);
        behave_together(world, {.fails = result});
        while (!w.done()) std::this_thread::yield();
      }
      (void)x.to_host<float>();
      world.all_reduce(x).wait();
    });
  };
  expect_error([&] { failing(ncclRemoteError); },
               {"all_reduce(sum, f32[4]) in group world {0, 1} on rank ", "remote process exited",
                "nccl_test.cpp:", "NCCL_DEBUG"},
               Exit::peer_lost);
  expect_error([&] { failing(ncclInvalidUsage); }, {"all_reduce(sum, f32[", "invalid usage"});
  EXPECT_EQ(nccl::alive(), 0);
}

TEST(NcclComm, AnErrorWithTransfersInFlightAbortsThem) {
  std::vector<Error> lost;
  auto unwinding = [&] {
    run({.lost = &lost}, [](Communicator& world) {
      Tensor x = zeros({1000}, f32, world.device());
      (void)x.to_host<float>();  // NCCL has connected the two
      world.barrier();
      if (world.rank() == 0) {
        Work w = world.all_reduce(x);  // rank 1 never comes
        fail(Exit::io, "while in flight");
      }
    });
  };
  expect_error(unwinding, {"while in flight"}, Exit::io);
  EXPECT_TRUE(lost.empty());
  EXPECT_EQ(nccl::alive(), 0);
  EXPECT_GE(nccl::aborted(), 1);
}

/// One group's transfer stands behind another's, which never ends: the one that is ended first
/// would wait for the other.
TEST(NcclComm, AnErrorEndsAllGroupsAtOnce) {
  auto began = std::chrono::steady_clock::now();
  auto failing = [] {
    run({}, [](Communicator& world) {
      auto dp = world.split(together, "dp"), tp = world.split(together, "tp");
      Tensor x = zeros({1000}, f32, world.device());
      (void)x.to_host<float>();
      world.barrier();
      if (world.rank() == 1) return;
      dp->all_reduce(x).wait();  // rank 1 never comes
      Work w = tp->all_reduce(x);
      fail(Exit::io, "in step 5");
    });
  };
  expect_error(failing, {"in step 5"}, Exit::io);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
  EXPECT_EQ(nccl::alive(), 0);
}

/// With nothing in flight, an error that all ranks have alike leaves the other groups usable.
TEST(NcclComm, AnErrorWithNothingInFlightEndsItsGroupsAlone) {
  run({}, [](Communicator& world) {
    Tensor x = full({10}, 1, f32, world.device());
    auto refuse = [&] {
      auto part = world.split(together, "part");
      part->all_reduce(x).wait();
      (void)x.to_host<float>();
      world.barrier();
      fail(Exit::config, "refused");
    };
    expect_config_error(refuse, {"refused"});
    world.all_reduce(x).wait();
    EXPECT_EQ(x.to_host<float>()[0], 4);
  });
}

/// The thread that watches stands in a call of CUDA: another one says so.
TEST(NcclComm, ADriverThatDoesNotAnswerIsReported) {
  std::vector<Error> lost;
  run({.time_limit = 0.3, .lost = &lost}, [&](Communicator& world) {
    Tensor x = zeros({4}, f32, world.device());
    (void)x.to_host<float>();
    std::unique_lock<std::mutex> driver;
    if (world.rank() == 0) driver = gpu_on_cpu::hold_driver();
    world.barrier();
    world.all_reduce(x).wait();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    world.barrier();
  });
  ASSERT_EQ(lost.size(), 2u);
  for (const Error& e : lost) {
    EXPECT_EQ(e.code(), Exit::peer_lost);
    EXPECT_NE(std::string(e.what()).find("the GPU's driver has not answered for 0.3 s"),
              std::string::npos)
        << e.what();
  }
}

TEST(NcclComm, BuffersThatDoNotFitAreOutOfMemory) {
  auto full = [] {
    run({}, [](Communicator& world) {
      Tensor x = zeros({4}, f32, world.device());
      (void)x.to_host<float>();
      Gate gate(world.device());
      Work w = world.all_reduce(x);
      behave_together(world, {.fails = ncclUnhandledCudaError,
                              .last_error = "Failed to CUDA calloc 4194304 bytes"});
      while (!w.done()) std::this_thread::yield();
    });
  };
  expect_error(full, {"all_reduce(sum, f32[4])", "calloc", "no longer fit", "--micro-batch"},
               Exit::memory);
  nccl::behave({});
}

TEST(NcclComm, RanksThatShareAGpuAreRefusedBeforeNcclIsAsked) {
  nccl::behave({});
  auto on_one = [] {
    run_thread_ranks(3, [](std::unique_ptr<Communicator> threads) {
      Device mine = gpu(threads->rank() % 2);
      nccl_world(std::move(threads), mine);
    });
  };
  expect_config_error(on_one, {"nccl: ranks 0 and 2 have the same GPU (host ",
                               "Start no more ranks on a host than", "--comm mpi"});
  EXPECT_TRUE(nccl::calls().empty());
}

TEST(NcclComm, AnOldLibraryIsRefused) {
  expect_config_error([] { run({.library = {.version = 22507}}, [](Communicator&) {}); },
                      {"nccl: version 2.25.7 was found; 2.26 or later is needed (rank 0 on host ",
                       "LD_LIBRARY_PATH", "--comm mpi"});
  EXPECT_TRUE(nccl::calls().empty());
}

WorldOptions on_gpu(int index, GpuTransport transport = GpuTransport::automatic) {
  return {.device = gpu(index), .gpu_transport = transport};
}

TEST(World, GivesEachRankAGpuAndTheBestTransport) {
  nccl::behave({});
  auto transport = [](const WorldOptions& options, const char* expected, const std::string& says) {
    run_worlds(
        2,
        [&](World& world) {
          int wanted =
              options.device.index == WorldOptions::own_gpu ? world.rank() : options.device.index;
          EXPECT_EQ(world.comm().device(), gpu(wanted));
          EXPECT_STREQ(world.comm().transport(), expected);
          EXPECT_EQ(world.notices().substr(0, says.size()), says);
          EXPECT_EQ(world.host().device(), cpu);
          EXPECT_STREQ(world.host().transport(), "threads");
          Tensor x = full({5}, world.rank() + 1, f32, world.comm().device());
          world.comm().all_reduce(x).wait();
          EXPECT_EQ(x.to_host<float>()[4], 3);
        },
        options);
  };
  int own = WorldOptions::own_gpu;
  std::string nccl_is_there =
      fmt::format("transport: NCCL {}.{}.{}\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  std::string on_host = "threads by way of the host";
  transport(on_gpu(own), "NCCL", nccl_is_there);
  transport(on_gpu(own, GpuTransport::nccl), "NCCL", nccl_is_there);
  transport(on_gpu(own, GpuTransport::available), "NCCL", nccl_is_there);
  transport(on_gpu(own, GpuTransport::host), on_host.c_str(), "transport: host memory\n");
  transport(on_gpu(0), on_host.c_str(),
            "transport: host memory (nccl: ranks 0 and 1 have the same GPU (host ");
  auto shared = [&] { transport(on_gpu(1, GpuTransport::nccl), "", ""); };
  expect_config_error(shared, {"ranks 0 and 1 have the same GPU"});
}

/// What is asked for is taken, but nobody gets a slow transport by chance.
TEST(World, SeveralGpusDoNotFallBackToTheHost) {
  nccl::behave({.version = 22507});
  auto start = [](const WorldOptions& options) {
    run_worlds(
        2, [](World& world) { EXPECT_STRNE(world.comm().transport(), "NCCL"); }, options);
  };
  int own = WorldOptions::own_gpu;
  expect_config_error([&] { start(on_gpu(own)); }, {"nccl: version 2.25.7 was found",
                                                    "rank 0 on host ", "far slower", "--comm mpi"});
  start(on_gpu(own, GpuTransport::host));
  start(on_gpu(own, GpuTransport::available));
  start(on_gpu(0));
  nccl::behave({});
}

TEST(World, ANumberThatNoGpuHasIsRefused) {
  expect_config_error(
      [] {
        run_worlds(
            2, [](World&) {}, on_gpu(77));
      },
      {"cuda:77"});
}

}  // namespace
}  // namespace triax::parallel
