#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "core/cuda/context.h"
#include "core/cuda/devices.h"
#include "tests/core/kernels.h"
#include "tests/gpu_on_cpu/blas.h"
#include "tests/support/expect_error.h"

namespace triax::test {
namespace {

using cuda::Tuning;
using gpu_on_cpu::blas_counts;
using gpu_on_cpu::BlasCounts;
using gpu_on_cpu::BlasHabits;

constexpr Device gpu{Device::Kind::cuda, 0};
constexpr DType floats[] = {f32, f64, f16, bf16};

enum Layout { plain, transposed, spaced };
const auto layouts = {plain, transposed, spaced};

/// Random values of `shape`, the last two dims laid out in one of three ways.
Tensor laid_out(Shape shape, Layout layout, DType dtype, uint64_t seed, Device on) {
  int r = shape.rank();
  if (layout == plain) return randn(shape, dtype, seed).to(on);
  if (layout == transposed) {
    std::swap(shape[r - 1], shape[r - 2]);
    return randn(shape, dtype, seed).to(on).transpose(r - 1, r - 2);
  }
  int64_t width = shape[r - 1];
  shape[r - 1] += 5;
  return randn(shape, dtype, seed).to(on).narrow(r - 1, 3, width);
}

class CudaMatmul : public testing::Test {
 protected:
  CudaMatmul() {
    gpu_on_cpu::set_blas_habits({});
    for (DType t : floats) cuda::set_tuning(t, Tuning::heuristic);
  }

  ~CudaMatmul() override { EXPECT_EQ(blas_counts().invalid, invalid_); }

  /// f(device) returns what it made there: on the GPU that it made on the CPU.
  template <class F> void expect_equal(F f) {
    Tensors got = f(gpu), expected = f(cpu);
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "output " << i);
      Tensor x = got[i].contiguous().to(cpu);
      expect_near(x, doubles(expected[i]), 4 * tolerance(x.dtype()));
    }
  }

  /// A product of plain matrices that no other test has.
  Tensor multiply(int64_t m, int64_t n, int64_t k, DType dtype = bf16, Write write = Write::set) {
    Tensor a = randn({m, k}, dtype, 1).to(gpu), b = randn({k, n}, dtype, 2).to(gpu);
    Tensor c = full({m, n}, 1, f32, gpu);
    backend(gpu).matmul({a, b, c, write});
    return c.to(cpu);
  }
  /// What run() asked of the library.
  template <class F> static BlasCounts asked(F run) {
    BlasCounts before = blas_counts();
    run();
    BlasCounts after = blas_counts();
    after.heuristics -= before.heuristics;
    for (size_t i = 0; i < 3; ++i) after.products[i] -= before.products[i];
    for (size_t i = 0; i < 4; ++i) after.epilogues[i] -= before.epilogues[i];
    return after;
  }

 private:
  int64_t invalid_ = blas_counts().invalid;
};

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

TEST_F(CudaMatmul, Bias) {
  struct Lies {
    int64_t step, skip;  // elements between two of the bias, and in front of it
  };
  for (DType dtype : floats)
    for (DType out : {dtype, accumulator(dtype)})
      for (Layout lc : layouts)
        for (Write write : {Write::set, Write::add})
          for (Lies lies : {Lies{1, 0}, {2, 0}, {2, 1}, {1, 1}}) {
            int64_t k = lies.step == 2 && lies.skip ? 0 : 45;
            SCOPED_TRACE(testing::Message() << name(dtype) << " to " << name(out) << ", result "
                                            << lc << ", k " << k << ", step " << lies.step
                                            << ", skip " << lies.skip << ", add " << int(write));
            expect_equal([&](Device on) {
              Tensor a = randn({33, k}, dtype, 1).to(on);
              Tensor b = laid_out({k, 70}, transposed, dtype, 2, on);
              Tensor values = randn({141}, dtype, 3).to(on), c = laid_out({33, 70}, lc, out, 4, on);
              Tensor bias(values.storage(), dtype, {70}, {lies.step}, lies.skip);
              backend(on).matmul({a, b, c, write, bias});
              return Tensors{c};
            });
            if (HasFailure()) return;
          }
}

TEST_F(CudaMatmul, BiasAndGelu) {
  for (DType dtype : floats)
    for (DType out : {dtype, accumulator(dtype)})
      for (Write write : {Write::set, Write::add})
        for (bool with_bias : {true, false})
          for (int64_t n : {64, 70})  // rows of `before` that are whole packs, and others
            for (Layout layout : {plain, spaced}) {
              SCOPED_TRACE(testing::Message()
                           << name(dtype) << " to " << name(out) << ", n " << n << ", layout "
                           << layout << ", bias " << with_bias << ", add " << int(write));
              expect_equal([&](Device on) {
                Tensor a = randn({33, 45}, dtype, 1).to(on);
                Tensor b = laid_out({45, n}, transposed, dtype, 2, on);
                Tensor bias = with_bias ? randn({n}, dtype, 3).to(on) : Tensor{};
                Tensor c = laid_out({33, n}, layout, out, 4, on);
                Tensor before = laid_out({33, n}, layout, dtype, 5, on);
                backend(on).matmul({a, b, c, write, bias, before});
                return Tensors{c, before};
              });
              if (HasFailure()) return;
            }
}

TEST_F(CudaMatmul, LeavesEpiloguesToTheLibraryWhereItCan) {
  auto epilogues = [&](DType dtype, int64_t n, bool gelu) {
    Tensor a = randn({32, 48}, dtype, 1).to(gpu), b = randn({48, n}, dtype, 2).to(gpu);
    Tensor bias = randn({n}, dtype, 3).to(gpu), c = empty({32, n}, dtype, gpu);
    Tensor before = gelu ? empty_like(c) : Tensor{};
    backend(gpu).matmul({a, b, c, Write::set, bias, before});  // decides
    return asked([&] { backend(gpu).matmul({a, b, c, Write::set, bias, before}); }).epilogues;
  };
  using Counts = std::array<int64_t, 4>;  // none, bias, gelu, both
  EXPECT_EQ(epilogues(bf16, 64, false), (Counts{0, 1, 0, 0}));
  EXPECT_EQ(epilogues(f32, 64, false), (Counts{0, 1, 0, 0}));
  EXPECT_EQ(epilogues(f64, 64, false), (Counts{1, 0, 0, 0}));
  EXPECT_EQ(epilogues(bf16, 64, true), (Counts{0, 0, 0, 1}));
  EXPECT_EQ(epilogues(f16, 64, true), (Counts{0, 0, 0, 1}));
  EXPECT_EQ(epilogues(bf16, 68, true), (Counts{0, 1, 0, 0}));  // rows of `before` are no packs
  EXPECT_EQ(epilogues(f32, 64, true), (Counts{0, 1, 0, 0}));
}

TEST_F(CudaMatmul, DoesItselfWhatTheLibraryRefuses) {
  gpu_on_cpu::set_blas_habits({.knows_epilogues = false});
  for (DType dtype : floats) {
    BlasCounts counts = asked([&] {
      expect_equal([&](Device on) {
        Tensor a = randn({24, 40}, dtype, 1).to(on), b = randn({40, 56}, dtype, 2).to(on);
        Tensor bias = randn({56}, dtype, 3).to(on), c = empty({24, 56}, dtype, on);
        Tensor d = empty_like(c), before = empty_like(c);
        backend(on).matmul({a, b, c, Write::set, bias});
        backend(on).matmul({a, b, d, Write::set, bias, before});
        return Tensors{c, d, before};
      });
    });
    EXPECT_EQ(counts.epilogues, (std::array<int64_t, 4>{counts.total(), 0, 0, 0}));
  }
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
  gpu_on_cpu::set_blas_habits({.ms = {2, 2, 0}});
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
  gpu_on_cpu::set_blas_habits({.ms = {0, 2, 1}, .fails = 0});
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

TEST_F(CudaMatmul, GeluInsideOnlyWhereThatIsFaster) {
  cuda::set_tuning(bf16, Tuning::timed);
  for (bool slow : {true, false}) {
    int64_t n = slow ? 32 : 40;
    gpu_on_cpu::set_blas_habits({.gelu_ms = slow ? 50. : 0.});
    Tensor a = randn({16, 24}, bf16, 1).to(gpu), b = randn({24, n}, bf16, 2).to(gpu);
    Tensor c = empty({16, n}, bf16, gpu), before = empty_like(c);
    backend(gpu).matmul({a, b, c, Write::set, {}, before});
    BlasCounts counts = asked([&] { backend(gpu).matmul({a, b, c, Write::set, {}, before}); });
    EXPECT_EQ(counts.epilogues[2], slow ? 0 : 1);
    EXPECT_EQ(counts.total(), 1);
  }
}

TEST_F(CudaMatmul, MeasuresNothingWhileCaptured) {
  gpu_on_cpu::set_blas_habits({.ms = {2, 2, 0}});
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
