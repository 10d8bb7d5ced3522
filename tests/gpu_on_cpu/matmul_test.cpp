#include <cublasLt.h>

#include <algorithm>
#include <thread>

#include "tests/gpu_on_cpu/products.h"
#include "tests/support/expect_error.h"
#include "triax/core/cuda/runtime/context.h"

namespace triax::test {
namespace {

TEST_F(CudaMatmul, OddSizes) {
  const int64_t sizes[] = {0, 1, 31, 33, 100};
  uint64_t key = 0;
  for (int64_t m : sizes)
    for (int64_t n : sizes)
      for (int64_t k : sizes)
        for (auto [la, lb] : {std::pair{plain, plain}, {plain, transposed}, {transposed, plain}}) {
          DType dtype = floats[key % 4], out = key / 4 % 2 ? accumulator(dtype) : dtype;
          Write write = key / 8 % 3 ? Write::set : Write::add;
          SCOPED_TRACE(testing::Message() << m << ' ' << n << ' ' << k << ' ' << name(dtype)
                                          << " to " << name(out) << ' ' << la << lb << int(write));
          ++key;
          expect_equal([&, la = la, lb = lb](Device on) {
            Tensor a = laid_out({m, k}, la, dtype, 1, on), b = laid_out({k, n}, lb, dtype, 2, on);
            Tensor c = randn({m, n}, out, 3).to(on);
            backend(on).matmul({a, b, c, write});
            return Tensors{c};
          });
          if (HasFailure()) return;
        }
}

TEST_F(CudaMatmul, EveryDTypeLayoutAndResult) {
  for (DType dtype : floats)
    for (Layout la : layouts)
      for (Layout lb : layouts)
        for (Layout lc : layouts)
          for (DType out : {dtype, accumulator(dtype)})
            for (Write write : {Write::set, Write::add}) {
              SCOPED_TRACE(testing::Message() << name(dtype) << " to " << name(out) << " layouts "
                                              << la << lb << lc << " add " << int(write));
              expect_equal([&](Device on) {
                Tensor a = laid_out({19, 23}, la, dtype, 1, on);
                Tensor b = laid_out({23, 37}, lb, dtype, 2, on);
                Tensor c = laid_out({19, 37}, lc, out, 3, on);
                backend(on).matmul({a, b, c, write});
                return Tensors{c};
              });
              if (HasFailure()) return;
            }
}

TEST_F(CudaMatmul, WritesNothingBesideItsResult) {
  expect_equal([&](Device on) {
    Tensor wide = full({20, 50}, 7, f32, on);
    backend(on).matmul({.a = randn({18, 9}, f32, 1).to(on),
                        .b = randn({9, 41}, f32, 2).to(on),
                        .c = wide.narrow(0, 1, 18).narrow(1, 5, 41)});
    return Tensors{wide};
  });
}

TEST_F(CudaMatmul, Batches) {
  for (DType dtype : floats) {
    SCOPED_TRACE(name(dtype));
    expect_equal([&](Device on) {
      auto made = [&](const Shape& s, uint64_t seed) { return randn(s, dtype, seed).to(on); };
      Tensor a = laid_out({2, 3, 5, 7}, transposed, dtype, 1, on);
      Tensor b = laid_out({2, 3, 7, 6}, spaced, dtype, 2, on);
      Tensor c = made({2, 3, 5, 6}, 3), one = made({7, 6}, 4).expand({2, 3, 7, 6});
      // Heads that stand between the other dims; one operand for all of a dim, or of all dims.
      Tensor heads = made({2, 5, 3, 7}, 5).transpose(1, 2);
      Tensor into = made({2, 5, 3, 6}, 6).transpose(1, 2);
      Tensor left = made({1, 3, 5, 7}, 7).expand({2, 3, 5, 7});
      Tensor right = made({2, 1, 7, 6}, 8).expand({2, 3, 7, 6}), third = made({2, 3, 5, 6}, 9);
      backend(on).matmul({a, b, c, Write::add});
      backend(on).matmul({heads, one, into});
      backend(on).matmul({left, right, third});
      return Tensors{c, into, third};
    });
  }
}

// Rows and matrices that are one and the same, as sum's gradient has them.

TEST_F(CudaMatmul, StretchedMatrices) {
  for (DType dtype : floats)
    expect_equal([&](Device on) {
      Tensor a = randn({1, 33}, dtype, 1).to(on).expand({31, 33});
      Tensor b = randn({33, 1}, dtype, 2).to(on).expand({33, 40});
      Tensor c = empty({31, 40}, dtype, on), d = empty({40, 40}, dtype, on);
      backend(on).matmul({a, b, c});
      backend(on).matmul({b.transpose(0, 1), b, d});
      return Tensors{c, d};
    });
}

TEST_F(CudaMatmul, AsksOnceForAShape) {
  EXPECT_EQ(asked([&] { multiply(40, 41, 42); }).heuristics, 1);
  EXPECT_EQ(asked([&] { multiply(40, 41, 42); }).heuristics, 0);
  EXPECT_EQ(asked([&] { multiply(40, 41, 42, bf16, Write::add); }).heuristics, 1);
  EXPECT_EQ(asked([&] { multiply(40, 41, 42, f16); }).heuristics, 1);
  EXPECT_EQ(asked([&] { std::thread([&] { multiply(40, 41, 42); }).join(); }).heuristics, 0);
}

TEST_F(CudaMatmul, AnotherAlignmentIsAnotherProduct) {
  Tensor a = randn({16 * 16 + 1}, f16, 1).to(gpu), b = randn({16, 24}, f16, 2).to(gpu);
  Tensor c = empty({16, 24}, f16, gpu);
  for (int64_t skip : {0, 1}) {
    Tensor x(a.storage(), f16, {16, 16}, {16, 1}, skip);
    BlasCounts counts = asked([&] { backend(gpu).matmul({x, b, c}); });
    EXPECT_EQ(counts.heuristics, 1);
    EXPECT_EQ(counts.products[0], skip ? 0 : 1);  // the one that reads 16 bytes at once
    Tensor y = empty({16, 24}, f16, cpu);
    backend(cpu).matmul({x.contiguous().to(cpu), b.to(cpu), y});
    expect_near(c.to(cpu), doubles(y), 4 * tolerance(f16));
  }
}

TEST_F(CudaMatmul, TimedTakesTheFastest) {
  gpu_on_cpu::set_blas_habits({.ms = {25, 25, 0}});  // more than a busy machine adds
  cuda::set_tuning(bf16, Tuning::timed);
  for (Write write : {Write::set, Write::add}) {
    Tensor first = multiply(48, 56, 64, bf16, write);
    Tensor again;
    BlasCounts counts = asked([&] { again = multiply(48, 56, 64, bf16, write); });
    EXPECT_EQ(counts.products, (std::array<int64_t, 3>{0, 0, 1}));
    EXPECT_TRUE(same_bits(first, again));  // measured elsewhere, added once
  }
  // Other threads do not measure, they do the same.
  std::thread([&] {
    BlasCounts counts = asked([&] { multiply(48, 56, 64); });
    EXPECT_EQ(counts.products, (std::array<int64_t, 3>{0, 0, 1}));
  }).join();
}

TEST_F(CudaMatmul, AddsPartsInAnyOrderOnlyWhereTimedAndInF32) {
  auto schemes = [](DType in, DType out) {
    Tensor a = randn({40, 24}, in, 1).to(gpu), b = randn({24, 72}, in, 2).to(gpu);
    backend(gpu).matmul({a, b, full({40, 72}, 0, out, gpu)});
    return gpu_on_cpu::blas_counts().reductions;
  };
  EXPECT_EQ(schemes(bf16, f32), CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  cuda::set_tuning(bf16, Tuning::timed);
  EXPECT_EQ(schemes(bf16, f32), CUBLASLT_REDUCTION_SCHEME_MASK);
  EXPECT_EQ(schemes(bf16, bf16), CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

TEST_F(CudaMatmul, ThreadsThatComeTogetherChooseAlike) {
  cuda::set_tuning(bf16, Tuning::timed);
  auto on_threads = [&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { multiply(56, 48, 40); });
    for (std::thread& t : threads) t.join();
  };
  on_threads();
  BlasCounts counts = asked(on_threads);
  EXPECT_EQ(counts.heuristics, 0);
  EXPECT_EQ(std::count(counts.products.begin(), counts.products.end(), 4), 1);
}

TEST_F(CudaMatmul, TimedPassesOverWhatFails) {
  gpu_on_cpu::set_blas_habits({.ms = {0, 50, 10}, .fails = 0});
  cuda::set_tuning(bf16, Tuning::timed);
  multiply(48, 64, 56);
  EXPECT_EQ(asked([&] { multiply(48, 64, 56); }).products, (std::array<int64_t, 3>{0, 0, 1}));
}

TEST_F(CudaMatmul, WhatTheLibraryCannotMultiplyIsAnError) {
  gpu_on_cpu::set_blas_habits({.fails = 0});
  for (int i = 0; i < 2; ++i)
    expect_error([&] { multiply(64, 64, 48); },
                 {"cuBLASLt multiplies no [64, 48] bf16 on cuda:0 by [48, 64] bf16 on cuda:0"});
}

TEST_F(CudaMatmul, MeasuresNothingWhileCaptured) {
  gpu_on_cpu::set_blas_habits({.ms = {25, 25, 0}});  // more than a busy machine adds
  cuda::set_tuning(bf16, Tuning::timed);
  Tensor a = randn({32, 80}, bf16, 1).to(gpu), b = randn({80, 96}, bf16, 2).to(gpu);
  Tensor c = full({32, 96}, 0, f32, gpu);
  cudaStream_t stream = cuda::context(0).stream();
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  BlasCounts counts = asked([&] { backend(gpu).matmul({a, b, c, Write::add}); });
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(counts.products, (std::array<int64_t, 3>{1, 0, 0}));

  cudaGraphExec_t again = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&again, graph, 0), cudaSuccess);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(again, stream), cudaSuccess);
  Tensor twice = full({32, 96}, 0, f32, cpu);
  for (int i = 0; i < 2; ++i) backend(cpu).matmul({a.to(cpu), b.to(cpu), twice, Write::add});
  expect_near(c.to(cpu), doubles(twice), 4 * tolerance(f32));
  ASSERT_EQ(cudaGraphExecDestroy(again), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);

  // What was taken then is not what is taken later.
  backend(gpu).matmul({a, b, c, Write::add});
  counts = asked([&] { backend(gpu).matmul({a, b, c, Write::add}); });
  EXPECT_EQ(counts.products, (std::array<int64_t, 3>{0, 0, 1}));
}

}  // namespace
}  // namespace triax::test
