#include "tests/gpu_on_cpu/runtime.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/core/kernels.h"
#include "tests/support/expect_error.h"
#include "triax/core/backend.h"
#include "triax/core/cuda/runtime/context.h"

// The stand-in itself, and what core/cuda does with streams, copies and memory.

namespace triax::test {
namespace {

constexpr Device gpu{Device::Kind::cuda, 0}, other{Device::Kind::cuda, 1};

TEST(GpuOnCpu, TensorsGoThereAndBack) {
  for (DType t : {f32, f64, f16, bf16}) {
    Tensor x = randn({33, 5}, t, 1, 2);
    EXPECT_TRUE(same_bits(x, x.to(gpu).to(cpu)));
    Tensor y = x.to(gpu).transpose(0, 1);
    EXPECT_TRUE(same_bits(x.transpose(0, 1).contiguous(), y.to(cpu)));
    EXPECT_TRUE(same_bits(x.to(gpu).to(f64).to(cpu), x.to(f64)));
  }
}

TEST(GpuOnCpu, BytesOfManyPieces) {
  Tensor x = randn({(5 << 20) + 3}, f32, 1, 2);
  EXPECT_TRUE(same_bits(x, x.to(gpu).to(cpu)));
}

TEST(GpuOnCpu, WhatTheHostCopiedItMayChange) {
  Tensor x = full({1000}, 1, f32, cpu), y = x.to(gpu);
  fill_(x, 2);
  EXPECT_EQ(y.narrow(0, 999, 1).item(), 1);
}

TEST(GpuOnCpu, DevicesWaitForEachOther) {
  for (int round = 0; round < 20; ++round) {
    Tensor x = full({10000}, round, f32, gpu), y = x.to(other);
    fill_(x, -1);
    x = {};
    Tensor z = full({10000}, -2, f32, gpu);  // the block that x had
    EXPECT_EQ(y.narrow(0, 9999, 1).item(), round);
  }
}

TEST(GpuOnCpu, ASteadyStepAllocatesNothingAndDoesNotWait) {
  auto step = [] {
    Tensor a = full({100, 10}, 1, f32, gpu), b = a.to(bf16), c = b.to(f32);
    Tensor ids = full({64}, 3, i32, cpu).to(gpu);
    return c;
  };
  for (int warm_up = 0; warm_up < 5; ++warm_up) step().to(cpu);
  auto before = gpu_on_cpu::calls();
  for (int i = 0; i < 5; ++i) step();
  auto after = gpu_on_cpu::calls();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_LE(after.pinned - before.pinned, 4);  // as many ids as are on their way
  EXPECT_EQ(after.host_waits, before.host_waits);
  EXPECT_EQ(after.questions, before.questions);
  EXPECT_GT(after.works, before.works);
}

/// Captures work(), for GPU 0; false if that made the capture invalid.
template <class F> bool captured(F work) {
  cuda::Context& c = cuda::context(0);
  int64_t rows = 0;
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(c.stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  c.set_shifted_rows(&rows);
  work();
  c.set_shifted_rows(nullptr);
  bool valid = cudaStreamEndCapture(c.stream(), &graph) == cudaSuccess;
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();
  return valid;
}

TEST(GpuOnCpu, WhatACaptureDoesNotAllowMakesItInvalid) {
  cuda::Event event;
  event.record(cuda::context(0).stream());
  EXPECT_TRUE(captured([] { full({10}, 1, f32, gpu); }));
  EXPECT_FALSE(captured([&] { EXPECT_THROW(event.hold(cuda::context(0).stream()), Error); }));
  EXPECT_FALSE(captured([&] { EXPECT_THROW(event.done(), Error); }));
  EXPECT_FALSE(captured([&] { EXPECT_THROW(event.wait(), Error); }));
  EXPECT_FALSE(captured([] { EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess); }));
  EXPECT_FALSE(captured([] { EXPECT_THROW(cuda::context(0).synchronize(), Error); }));
  EXPECT_TRUE(captured([&] { std::thread([&] { event.wait(); }).join(); }));
}

TEST(GpuOnCpu, ACapturedStepTakesNoBlockThatAnotherThreadFreed) {
  const auto& pool = cuda::context(0).pool();
  constexpr size_t bytes = 123 << 10;
  void* freed = pool->allocate(bytes);
  std::thread([&] { pool->deallocate(freed, bytes); }).join();
  void* taken = nullptr;
  EXPECT_TRUE(captured([&] { EXPECT_NO_THROW(taken = pool->allocate(bytes)); }));
  EXPECT_NE(taken, freed);
  EXPECT_EQ(pool->allocate(bytes), freed);
  pool->deallocate(freed, bytes);
  pool->deallocate(taken, bytes);
}

TEST(GpuOnCpu, TransfersAreSeenAtTheirMark) {
  Backend& b = backend(gpu);
  Tensor x = full({1000}, 3, f32, gpu);
  auto bytes = std::make_shared<Storage>(x.bytes(), cpu, b.host_allocator());
  Tensor y(bytes, f32, x.shape(), {1});
  b.transfer(x, y);
  b.mark()->wait();
  EXPECT_EQ(y.data<float>()[999], 3);
}

TEST(GpuOnCpu, NoMemoryLeftNamesWhoHasIt) {
  memory::Scope scope(memory::parameters);
  Tensor some = empty({1000}, f32, gpu);
  expect_error([] { empty({int64_t{1} << 31}, f32, gpu); },
               {"left on the GPU", "parameters", "4000 bytes"}, Exit::memory);
}

TEST(GpuOnCpu, AnIndexTooLargeIsNamed) {
  expect_config_error(
      [] {
        empty({1}, f32, {Device::Kind::cuda, 7});
      },
      {"cuda:7 asked for; this process sees 4 GPUs"});
}

TEST(GpuOnCpuDeathTest, TheHostCannotTouchDeviceMemory) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        Tensor x = full({4}, 1, f32, gpu);
        cuda::context(0).synchronize();
        std::printf("%g", double(x.data<float>()[0]));
      },
      "");
}

}  // namespace
}  // namespace triax::test
