// What the emulated GPU and NCCL refuse, and let wait, if they are asked to be strict (README.md).
#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <future>
#include <thread>

#include "tests/gpu_on_cpu/device.h"
#include "tests/gpu_on_cpu/gate.h"
#include "triax/core/cuda/runtime/context.h"
#include "triax/core/tensor.h"
#include "triax/parallel/comm/gpu/nccl_comm.h"
#include "triax/parallel/comm/threads/thread_comm.h"

namespace triax {
namespace {

using gpu_on_cpu::Gate;
using gpu_on_cpu::Options;
using parallel::Communicator;
using parallel::Work;
using namespace std::chrono_literals;

constexpr Device gpu{Device::Kind::cuda, 0};

/// Options that count while it lives.
class Strict {
 public:
  explicit Strict(void (*change)(Options&)) {
    Options now = before_;
    change(now);
    configure(now);
  }
  ~Strict() { configure(before_); }
  Strict(const Strict&) = delete;
  Strict& operator=(const Strict&) = delete;

 private:
  Options before_ = gpu_on_cpu::options();
};

/// Ranks are threads, each with a GPU of its own.
void run_over_nccl(const std::function<void(Communicator&)>& rank) {
  parallel::prepare_nccl();
  parallel::run_thread_ranks(2, [&](std::unique_ptr<Communicator> threads) {
    Device mine{Device::Kind::cuda, threads->rank()};
    auto world = nccl_world(std::move(threads), mine);
    rank(*world);
  });
}

bool ends(Work& work, std::chrono::milliseconds within) {
  for (auto end = std::chrono::steady_clock::now() + within;
       std::chrono::steady_clock::now() < end && !work.done();)
    std::this_thread::sleep_for(1ms);
  return work.done();
}

TEST(StrictNccl, MessagesFillTheRoomAndThenWait) {
  constexpr int64_t n = 64;
  Strict strict([](Options& o) { o.nccl_room = 2 * n * sizeof(float); });
  run_over_nccl([&](Communicator& world) {
    std::vector<Tensor> x;
    for (int i = 0; i < 4; ++i) x.push_back(full({n}, world.rank() ? -1 : i, f32, world.device()));
    if (world.rank() == 0) {
      std::vector<Work> sent;
      for (Tensor& one : x) sent.push_back(world.send(one, 1));
      EXPECT_TRUE(ends(sent[0], 5s));
      EXPECT_TRUE(ends(sent[1], 5s));
      EXPECT_FALSE(ends(sent[2], 100ms));
      world.barrier();
      for (Work& work : sent) work.wait();
    } else {
      world.barrier();
      for (Tensor& one : x) world.recv(one, 0).wait();
      for (int i = 0; i < 4; ++i) EXPECT_EQ(x[size_t(i)].to_host<float>()[n - 1], i);
    }
  });
}

TEST(StrictNccl, TwoRanksOnOneGpuAreRefused) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  auto status_of = [&](int rank, int device) {
    cudaSetDevice(device);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = "world";
    ncclComm_t comm = nullptr;
    ncclResult_t status = ncclCommInitRankConfig(&comm, 3, id, rank, &config);
    while (status == ncclInProgress) ncclCommGetAsyncError(comm, &status);
    ncclCommAbort(comm);
    return status;
  };
  std::vector<std::future<ncclResult_t>> ranks;
  for (int rank : {0, 1, 2})
    ranks.push_back(std::async(std::launch::async, status_of, rank, rank % 2));
  for (auto& status : ranks) EXPECT_EQ(status.get(), ncclInvalidUsage);
}

/// True if `call` returns only when what a stream has been given is done.
bool waits_for_device(const std::function<void()>& call) {
  (void)zeros({4}, f32, gpu).to_host<float>();
  Gate gate(gpu);
  std::promise<void> returned;
  std::jthread caller([&] {
    cudaSetDevice(0);
    call();
    returned.set_value();
  });
  bool waits = returned.get_future().wait_for(100ms) == std::future_status::timeout;
  gate.open();
  return waits;
}

void allocate() {
  void* data = nullptr;
  cudaMalloc(&data, 512);
  cudaFree(data);
}
void allocate_pinned() {
  void* data = nullptr;
  cudaMallocHost(&data, 512);
  cudaFreeHost(data);
}

TEST(StrictGpu, AllocationsWaitForTheDevice) {
  void (*leak)() = [] {
    void* data = nullptr;
    cudaMalloc(&data, 512);
  };
  EXPECT_TRUE(waits_for_device(allocate)) << "cudaFree always does";
  EXPECT_FALSE(waits_for_device(leak));
  EXPECT_FALSE(waits_for_device(allocate_pinned));
  Strict strict([](Options& o) { o.malloc_waits = 2; });
  EXPECT_TRUE(waits_for_device(leak));
  EXPECT_TRUE(waits_for_device(allocate_pinned));
}

/// Ends this process: 0 if `check` holds.
void exit_with(bool holds) { std::_Exit(holds ? 0 : 1); }

void expect_alone(void (*check)()) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(check(), testing::ExitedWithCode(0), "");
}

TEST(StrictGpuDeathTest, KernelsAreLoadedAtTheirFirstLaunch) {
  expect_alone([] {
    Strict strict([](Options& o) { o.lazy = true; });
    auto fill = [] { (void)full({5}, 1, f32, gpu); };
    exit_with(waits_for_device([] { gpu_on_cpu::load(cuda::context(0).stream(), 77); }) &&
              !waits_for_device([] { gpu_on_cpu::load(cuda::context(0).stream(), 77); }) &&
              (fill(), !waits_for_device(fill)));
  });
  expect_alone([] {
    parallel::prepare_nccl();
    Strict strict([](Options& o) { o.lazy = true; });
    exit_with(!waits_for_device([] { gpu_on_cpu::load(cuda::context(0).stream(), 77); }));
  });
}

/// True if what is called behind another stream's work waits for it.
bool is_behind_another_stream() {
  cudaStream_t other = nullptr;
  cuda::context(0);
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  Gate gate(gpu);
  gpu_on_cpu::enqueue(cuda::context(0).stream(), [] {});
  std::promise<void> done;
  gpu_on_cpu::enqueue(other, [&] { done.set_value(); });
  auto reached = done.get_future();
  bool waits = reached.wait_for(100ms) == std::future_status::timeout;
  gate.open();
  reached.wait();
  cudaStreamDestroy(other);
  return waits;
}

TEST(StrictGpuDeathTest, WithOneConnectionStreamsShareAQueue) {
  expect_alone([] { exit_with(!is_behind_another_stream()); });
  expect_alone([] {
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    exit_with(is_behind_another_stream());
  });
}

/// Returns what another stream reads of a block that is freed before it comes to it, or behind it.
float read_on_another_stream(bool too_early) {
  Tensor x = full({64}, 1, f32, gpu), y = zeros({64}, f32, gpu);
  (void)x.to_host<float>();
  cudaStream_t other = nullptr;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  std::promise<void> freed;
  if (too_early) gpu_on_cpu::enqueue(other, [open = freed.get_future().share()] { open.wait(); });
  cudaMemcpyAsync(y.data(), x.data(), 256, cudaMemcpyDeviceToDevice, other);
  cuda::Event read;
  read.record(other);
  if (!too_early) read.hold(cuda::context(0).stream());
  x = {};
  cuda::context(0).synchronize();
  freed.set_value();
  cudaStreamSynchronize(other);
  cudaStreamDestroy(other);
  return y.to_host<float>()[63];
}

TEST(PoisonDeathTest, ABlockThatWasFreedTooEarlyHoldsNan) {
  expect_alone([] { exit_with(read_on_another_stream(true) == 1); });
  expect_alone([] {
    ::setenv("TRIAX_POISON", "1", 1);
    exit_with(std::isnan(read_on_another_stream(true)) && read_on_another_stream(false) == 1);
  });
}

/// Whichever of the two comes first.
TEST(PoisonDeathTest, ABlockThatWasFreedTooEarlyIsARace) {
  auto reads = [](bool too_early) {
    ::setenv("TRIAX_POISON", "1", 1);
    Strict strict([](Options& o) { o.races = true; });
    exit_with(read_on_another_stream(too_early) == 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(reads(false), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      reads(true), testing::KilledBySignal(SIGABRT),
      "race: copy on stream .* and fill of a freed block on stream .*, which reads 256 bytes");
}

}  // namespace
}  // namespace triax
